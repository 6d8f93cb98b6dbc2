"""What a process of Spark's need not look at behind each task; in processes of their own, for it cannot be undone."""

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

ROOT = Path(__file__).parents[3]
_ASKED = (
    "import gc; from fleximq.pipeline.reader.collector import passOverImports as passOver;"
    "before = gc.get_freeze_count(); passOver(); first = gc.get_freeze_count();"
    "more = [[] for _ in range(100)]; passOver(); print(first - before, gc.get_freeze_count() - first)"
)


class CollectorTests(SynchronousTestCase):
    """What the collector passes over."""

    if skip:
        skip = skip

    def passedOver(self, **environment: str) -> list[int]:
        """Return how many objects are passed over from the first call on, and how many more from the second on."""
        others = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
        command = [sys.executable, "-c", _ASKED]
        said = subprocess.run(
            command, cwd=ROOT, env=others | environment, capture_output=True, text=True, timeout=60, check=True
        )
        return [int(number) for number in said.stdout.split()]

    def test_process(self) -> None:
        """In a process that serves many tasks it is what was there at the first call."""
        first, second = self.passedOver(SPARK_REUSE_WORKER="1")
        self.assertGreater(first, 1000)
        self.assertEqual(second, 0)

    def test_elsewhere(self) -> None:
        """A process that is not Spark's is left alone."""
        self.assertEqual(self.passedOver(), [0, 0])
