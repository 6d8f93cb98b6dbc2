"""Publications that schemas check: a broker that does not check them, or refuses them, has no number."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.fitted import CheckedAvro, CheckedJson, CheckedProtobuf, Unchecked
from benchmarks.peers.fleximq import FlexiMQ
from benchmarks.scenes import Scene
from benchmarks.side_by_side import measure
from benchmarks.work.effort import QUICK
from benchmarks.work.fitting import Fitting
from tests.schemas.installed import missing as skip  # noqa: F401


class Careless(CheckedJson):
    """A broker that does not check what it should."""

    command = FlexiMQ.command


class Strict(CheckedJson):
    """A broker whose schema the document does not fit."""

    document = b"{}"


class FittingTests(SynchronousTestCase):
    """Brokers that do what is measured, and others."""

    def test_eachKindOfSchemaHasNumbers(self) -> None:
        kinds = (Unchecked, CheckedJson, CheckedAvro, CheckedProtobuf)
        results = measure(Scene("s", "A scene", Fitting(), kinds), QUICK, 1)
        self.assertEqual((results.refused, list(results.runs)), ({}, [kind.broker for kind in kinds]))

    def test_othersHaveNone(self) -> None:
        for kind, words in ((Careless, "was accepted"), (Strict, "was refused")):
            results = measure(Scene("s", "A scene", Fitting(), (kind,)), QUICK, 1)
            self.assertIn(words, results.refused[kind.broker])
