"""The measurement of tables of the latest rows, small."""

import json
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip and not all(map(find_spec, ("deltalake", "pyiceberg", "sqlalchemy"))):
    skip = "deltalake and pyiceberg are not installed"

if not skip:
    from benchmarks.pipeline import upserting


class UpsertingTests(SynchronousTestCase):
    """``python -m benchmarks.pipeline.upserting``."""

    def test_eachWayHasFigures(self) -> None:
        path = Path(self.mktemp()).absolute()
        words = "--keys 3000 --changes 10 200 --peer-keys 300 --peer-changes 20 --json".split()
        with redirect_stdout(StringIO()) as printed:
            self.assertEqual(upserting.main([*words, str(path)]), 0)
        figures = json.loads(path.read_text())["figures"]
        self.assertEqual(
            {each["way"] for each in figures}, {"PyIceberg's upsert", "FlexiMQ, delta", "FlexiMQ, iceberg"}
        )
        self.assertEqual(len(figures), 11)
        self.assertEqual(printed.getvalue().count("records/s"), 11)
