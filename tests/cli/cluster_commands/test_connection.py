"""fleximq.cli.cluster_commands.connection, with a cluster whose servers elect; with real ones in test_copies."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Timer
from typing import Any

from twisted.internet.defer import Deferred, fail, succeed
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.cluster_commands import connection
from fleximq.cli.cluster_commands.connection import Calls, Survey, connected
from fleximq.cluster.interfaces import NodeRecord, ShardOwner, Unknown
from fleximq.config.settings import Settings
from tests.cluster.test_node_state import record

_SETTINGS = Settings.of({"cluster": ["nats://127.0.0.1:1"]})


class Electing:
    """A cluster with the keys of two nodes, which both write again after a while, if ``hasLeader``; one answers."""

    reason = ""
    isConnected = True
    hasLeader = True

    def __init__(self) -> None:
        self.calls = Calls()

    def reach(self, create: bool) -> "Deferred[None]":
        """Connect."""
        return succeed(None) if self.hasLeader else fail(Unknown("they elect"))

    def nodes(self) -> "Deferred[int]":
        """Return how many there are."""
        return succeed(2)

    def watch(self, survey: Survey) -> Callable[[], None]:
        """Tell of all keys, and of them again when there is a leader."""
        self.calls.add(self._tell, survey)
        timer = Timer(0.3, self.calls.add, (self._tell, survey))
        timer.start()
        return timer.cancel

    def lastKnown(self, survey: Survey) -> "Deferred[None]":
        """Tell of all keys in the copy of one server."""
        self._tell(survey)
        return succeed(None)

    def ask(self, node: str, question: Mapping[str, Any]) -> "Deferred[Mapping[str, Any]]":
        """Ask a node."""
        if node != "a":
            return fail(Unknown("no responders"))
        return succeed({"error": "", "applied": {"0": 12}, "about": {"state": "owning"}})

    def _tell(self, survey: Survey) -> None:
        survey.ownerChanged(0, ShardOwner("a", 1, 1))
        for node in "ab":
            survey.nodeChanged(node, record(9))


class ConnectedTests(SynchronousTestCase):
    """Surveys right after the death of a server."""

    def setUp(self) -> None:
        self.cluster = Electing()

        @contextmanager
        def made(settings: Settings) -> Iterator[tuple[Calls, Electing]]:
            yield self.cluster.calls, self.cluster

        self.patch(connection, "_cluster", made)
        self.patch(connection, "_SILENCE", 0.0)

    def test_waits(self) -> None:
        """While no node at all can write its key, none of them is silent."""
        with connected(_SETTINGS) as (_, _, survey):
            self.assertEqual((sorted(survey.living), survey.unread), (["a", "b"], ""))

    def test_unread(self) -> None:
        """Without a leader a survey has the last known keys, and what a node answers; a change is refused."""
        self.cluster.hasLeader = False
        with connected(_SETTINGS, lastKnown=True) as (_, _, survey):
            self.assertEqual((survey.living, survey.answering), ({}, {"a"}))
            self.assertIn("they elect", survey.unread)
            self.assertEqual(survey.nodes["a"], NodeRecord({0: 12}, {**record(9).about, "state": "owning"}))
            self.assertEqual(survey.nodes["b"], record(9))
        self.assertRaises(Unknown, connected(_SETTINGS).__enter__)
