"""What Spark is started with; tests.installed_pipeline starts it."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.limits import GIBIBYTE
    from fleximq.pipeline.command.spark_session import driverMemory


class MemoryTests(SynchronousTestCase):
    """How much memory Spark's Java takes."""

    def limited(self, written: str) -> int:
        """Return it where a file says what there is."""
        file = Path(self.mktemp())
        file.write_text(written)
        return driverMemory((str(file),))

    def test_limited(self) -> None:
        """A quarter of what this process may have, and at least a GiB."""
        self.assertEqual(self.limited(f"{2 * GIBIBYTE}\n"), GIBIBYTE)
        self.assertEqual(self.limited("1000"), GIBIBYTE)

    def test_unlimited(self) -> None:
        """Without a limit that can be read it is a quarter of the machine's, at most 4 GiB."""
        expected = driverMemory(())
        self.assertTrue(GIBIBYTE <= expected <= 4 * GIBIBYTE)
        self.assertEqual(self.limited("max\n"), expected)
        self.assertEqual(driverMemory(("/not/there",)), expected)
