"""What Spark's Python workers print at their end."""

import io
import sys

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.command.worker_daemon import printError


class PrintedTests(SynchronousTestCase):
    """An error that ends a worker."""

    def printed(self, error: Exception) -> str:
        """Return what is printed."""
        out = io.StringIO()
        self.patch(sys, "stderr", out)
        try:
            raise error
        except Exception:
            printError()
        return out.getvalue()

    def test_brokenPipeIsNotPrintedButOtherErrorsAre(self) -> None:
        self.assertEqual(self.printed(BrokenPipeError()), "")
        self.assertIn("ValueError: a", self.printed(ValueError("a")))
