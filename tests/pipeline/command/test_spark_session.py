"""What Spark is started with; tests.installed_pipeline starts it."""

import os
from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any
from unittest.mock import patch

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.limits import GIBIBYTE
    from fleximq.pipeline import wait_notice
    from fleximq.pipeline.command import java, spark_session
    from fleximq.pipeline.command.job_run import JobRun
    from fleximq.pipeline.command.memory import shareOfMemory


class NoticeTests(SynchronousTestCase):
    """The start of Spark, which may take long."""

    def test_slowStartIsSaidAndTheFirstOneTellsHowLongItMayTake(self) -> None:
        self.patch(wait_notice, "SILENCE", 0.0)
        cache = patch.dict(os.environ, XDG_CACHE_HOME=str(Path(self.mktemp()).absolute()))
        cache.start()
        self.addCleanup(cache.stop)
        long = ": its first start on a machine may take a minute, later ones some seconds"
        self.assertEqual([self.start(), self.start()], [f"starting Spark{long}", "starting Spark"])

    def start(self) -> str:
        """Start a session that is slow, and return what is said."""
        said: list[str] = []
        noticed = Event()
        run = JobRun(Namespace(master=None, conf=None, verbose=False, no_cache=False), True)

        def writeLine(line: str) -> None:
            said.append(line)
            noticed.set()

        class Launcher:
            def __init__(self, *arguments: object) -> None:
                noticed.wait(300)
                self.spark = "the session"

        self.patch(run, "writeLine", writeLine)
        self.patch(spark_session, "SparkLauncher", Launcher)
        with run:
            self.assertEqual(run.session(), "the session")
            run._session = None
        return said[0]


class JavaOptionsTests(SynchronousTestCase):
    """What Java is started with."""

    def options(self, quick: bool) -> list[str]:
        """Return its options, of which the last is the user's."""
        started: list[str] = []

        def start(launcher: object, master: object, settings: Mapping[str, str]) -> Any:
            started.extend(settings["spark.driver.extraJavaOptions"].split())

        self.patch(spark_session.SparkLauncher, "_start", start)
        self.patch(java, "find", lambda: java.Java("java", 17))
        conf = {"spark.driver.extraJavaOptions": "-Dours=last"}
        spark_session.SparkLauncher("local[1]", conf, archive=False, quick=quick)._restore()
        return started

    def test_onlyAQuickSessionDoesWithoutTheSecondCompilerUnlessTheUserWantsIt(self) -> None:
        self.assertNotIn("-XX:TieredStopAtLevel=1", self.options(quick=False))
        options = self.options(quick=True)
        self.assertLess(options.index("-XX:TieredStopAtLevel=1"), options.index("-Dours=last"))


class MemoryTests(SynchronousTestCase):
    """How much memory Spark's Java takes."""

    def limited(self, written: str) -> int:
        """Return it where a file says what there is."""
        file = Path(self.mktemp())
        file.write_text(written)
        return shareOfMemory((str(file),))

    def test_memoryIsAQuarterOfTheLimitAndAtLeastAGibibyte(self) -> None:
        self.assertEqual(self.limited(f"{2 * GIBIBYTE}\n"), GIBIBYTE)
        self.assertEqual(self.limited("1000"), GIBIBYTE)

    def test_withoutALimitMemoryIsAQuarterOfTheMachineAtMostFourGibibytes(self) -> None:
        expected = shareOfMemory(())
        self.assertTrue(GIBIBYTE <= expected <= 4 * GIBIBYTE)
        self.assertEqual(self.limited("max\n"), expected)
        self.assertEqual(shareOfMemory(("/not/there",)), expected)
