"""What Spark's Python processes say at their end."""

from contextlib import redirect_stderr
from io import StringIO
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from pyspark import daemon as _daemon

    from fleximq.pipeline.command import quiet_daemon

    daemon: Any = _daemon


class LastWordsTests(SynchronousTestCase):
    """What is printed where Spark's daemon prints an error."""

    def said(self, error: BaseException) -> str:
        """Return what is printed of an error that ends a process."""

        def manage() -> None:
            try:
                raise error
            except BaseException:
                daemon.traceback.print_exc()

        self.patch(daemon, "traceback", daemon.traceback)
        self.patch(daemon, "manager", manage)
        written = StringIO()
        with redirect_stderr(written):
            quiet_daemon.main()
        return written.getvalue()

    def test_ended(self) -> None:
        """Nothing, if nobody listens any more or the user has ended it."""
        for error in (BrokenPipeError(32, "Broken pipe"), ConnectionResetError(), KeyboardInterrupt()):
            self.assertEqual(self.said(error), "", error)

    def test_others(self) -> None:
        """Anything else as ever."""
        said = self.said(OSError(28, "no space left"))
        self.assertTrue(said.startswith("Traceback") and said.endswith("no space left\n"), said)

    def test_rest(self) -> None:
        """Whatever else the daemon wants of ``traceback`` is there."""
        self.said(KeyboardInterrupt())
        self.patch(daemon, "traceback", quiet_daemon._Words())
        try:
            raise ValueError("no")
        except ValueError:
            self.assertIn("ValueError: no", daemon.traceback.format_exc())
