"""What a process of Spark's keeps from task to task; in processes of their own, for it cannot be undone."""

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

ROOT = Path(__file__).parents[3]
_GARBAGE = (
    "import gc; from fleximq.pipeline.reader.journals import freezeImports;"
    "gc.disable(); counts = [gc.get_freeze_count()]; kept = [];\n"
    "for _ in range(3): freezeImports(); counts.append(gc.get_freeze_count()); kept += [[] for _ in range(100)]\n"
    "print(*(after - before for before, after in zip(counts, counts[1:])))"
)
_PLANNING = (
    "import gc; from fleximq.pipeline.source import FlexiMQSource;"
    "gc.disable(); before = gc.get_freeze_count();"
    "FlexiMQSource({'path': 'x'}).schema(); print(gc.get_freeze_count() - before)"
)


class LongLivedTests(SynchronousTestCase):
    """What is done in processes that serve many tasks, and not in others."""

    if skip:
        skip = skip

    def said(self, program: str, **environment: str) -> list[int]:
        """Return the numbers that a program prints."""
        others = {name: value for name, value in os.environ.items() if name != "SPARK_REUSE_WORKER"}
        said = subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env=others | environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return [int(number) for number in said.stdout.split()]

    def test_importsOfTheFirstTwoCallsAreFrozen(self) -> None:
        first, second, third = self.said(_GARBAGE, SPARK_REUSE_WORKER="1")
        self.assertGreater(first, 1000)
        self.assertGreaterEqual(second, 100)
        self.assertEqual(third, 0)

    def test_importsAreFrozenWhereSparkPlans(self) -> None:
        self.assertGreater(self.said(_PLANNING, SPARK_REUSE_WORKER="1")[0], 1000)

    def test_otherProcessesAreLeftAlone(self) -> None:
        self.assertEqual(self.said(_GARBAGE), [0, 0, 0])
