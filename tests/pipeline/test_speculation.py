"""Spark runs a second attempt at slow tasks, on two executors, and one of the executors is killed: every row is there
once.

Spark makes a second attempt on another host only, so a ``local-cluster`` never makes one. Here two workers of a cluster
have loopback addresses of their own.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest import SkipTest

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from tests.broker_process import BrokerProcess
from tests.nightly import nightly
from tests.pipeline.end_to_end import PATIENCE, ROOT, sessionOf
from tests.pipeline.installed import missing as skip
from tests.pipeline.written import Written

if not skip:
    import pyspark

    from fleximq.pipeline.command.java import NoJava, find, javaHome
    from fleximq.pipeline.lake.completeness import audit
    from fleximq.pipeline.lake.live_files import liveFiles, rowGroups

#: Batches, and rows of each.
_BATCHES, _EACH = 4, 400
#: Settings of Spark for two executors, with second attempts at tasks that are slower than the first half.
_SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.cores.max": "2",
    "spark.ui.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.minTaskRuntime": "0",
    "spark.speculation.efficiency.enabled": "false",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.locality.wait": "0",
    "spark.python.daemon.module": "tests.pipeline.twin_daemon",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.rolling.enabled": "false",
    "spark.eventLog.compress": "false",
}
_MASTER = re.compile("spark://127.0.0.1:[0-9]+")
#: A job whose tasks have one segment each.
_INGEST = """
import sys
from fleximq.pipeline import main
from fleximq.pipeline.jobs import ingest
ingest.TASK_BYTES = 5_000
sys.exit(main.main(sys.argv[1:]))
"""
#: A program that publishes lines, one file in each batch.
_SINK = """
import sys
from fleximq.pipeline.command.spark_session import SparkLauncher
folder, url, *settings = sys.argv[1:]
launcher = SparkLauncher(conf=dict(each.split("=", 1) for each in settings), archive=False)
lines = launcher.spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(f"{folder}/source")
writing = lines.repartition(3).writeStream.format("fleximq").options(url=url, topic="rows", portionBytes="2048")
query = writing.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True).start()
query.awaitTermination()
launcher.end()
"""


@nightly
class SpeculationTests(SynchronousTestCase):
    """``folder`` has all that the test writes."""

    def setUp(self) -> None:
        self.folder = Path(self.mktemp()).absolute()
        for name in ("events", "twins", "source"):
            (self.folder / name).mkdir(parents=True)
        master = self.cluster()
        told = {**_SETTINGS, "spark.master": master, "spark.eventLog.dir": f"file://{self.folder}/events"}
        self.settings = [f"{name}={value}" for name, value in told.items()]

    def test_speculativeTasksWriteEachRowOnceToParquet(self) -> None:
        self.ingest("parquet")

    def test_speculativeTasksWriteEachRowOnceToDelta(self) -> None:
        self.ingest("delta")

    def test_speculativeTasksWriteEachRowOnceToIceberg(self) -> None:
        self.ingest("iceberg")

    def test_killedExecutorWritesEachRowOnce(self) -> None:
        """An executor is killed while the first attempt waits in it or in the other one."""
        self.ingest("parquet", kills=True)

    def test_speculativeTasksPublishEachRowOnce(self) -> None:
        lines = [f"{number} of the lines" for number in range(_BATCHES * _EACH)]
        for batch in range(_BATCHES):
            text = "\n".join(lines[batch * _EACH : (batch + 1) * _EACH])
            (self.folder / "source" / f"{batch}.txt").write_text(text)
        with BrokerProcess("--journal", str(self.folder / "journal"), "--durable", "#") as broker:
            url = f"tcp://127.0.0.1:{broker.port()}"
            self.ended(self.start("driver", sys.executable, "-c", _SINK, str(self.folder), url, *self.settings))
            with connect(url) as client:
                number = sum(row["count"] for row in client.ask("/journal/bounds")["topics"])
                self.assertEqual(number, len(lines))
                with client.subscribe("rows", from_="first") as deliveries:
                    found = [deliveries.next(PATIENCE) for _ in range(number)]
        self.assertEqual(sorted(each.value for each in found if each is not None), sorted(lines))
        self.assertTwice()

    def ingest(self, tableFormat: str, kills: bool = False) -> None:
        """Ingest rows and compare the table with them."""
        written = Written(str(self.folder / "journal"), segmentBytes=5_000)
        for number in range(_BATCHES * _EACH // 20):
            written.kept(f"t{number % 3}", *(b"%d" % each for each in range(written.next, written.next + 20)))
        words = ["ingest", "--journal", written.folder, "--lake", str(self.folder / "lake"), "--format", tableFormat]
        words += ["--once", "--max-offsets", str(_EACH), "--no-cache"]
        conf = [word for each in self.settings for word in ("--conf", each)]
        process = self.start("driver", sys.executable, "-c", _INGEST, *words, *conf)
        if kills:
            self.until(process, lambda: list((self.folder / "twins").iterdir()), "driver")
            executors = [pid for worker in self.workers for pid in sessionOf(worker.pid) if pid != worker.pid]
            os.kill(min(executors), signal.SIGKILL)
        self.ended(process)
        table = str(self.folder / "lake" / "messages")
        found = [
            (row["offset"], row["topic"], row["value"])
            for path, topic in liveFiles(table)
            for rows in rowGroups(table, path, topic)
            for row in rows.select(["offset", "topic", "value"]).to_pylist()
        ]
        self.assertEqual(sorted(found), [(offset, row[0], row[2]) for offset, row in sorted(written.rows.items())])
        self.assertEqual(audit(table), [])
        if not kills:
            self.assertTwice()

    def cluster(self) -> str:
        """Start a master and two workers with one core each, and return the master's URL."""
        try:
            java = find()
        except NoJava as error:
            raise SkipTest(str(error)) from None
        javaHome(java, str(self.folder / "java"))
        launch = (str(Path(pyspark.__file__).parent / "bin" / "spark-class"), "org.apache.spark.deploy.")
        master = self.start("master", launch[0], f"{launch[1]}master.Master", "--host", "127.0.0.1", "--port", "0")
        self.until(master, lambda: _MASTER.search(self.said("master")), "master")
        (url,) = _MASTER.findall(self.said("master"))[:1]
        self.workers = []
        for number in (2, 3):
            words = ("--host", f"127.0.0.{number}", "-c", "1", "-m", "1g", "-d", str(self.folder / f"work{number}"))
            worker = self.start(f"worker{number}", launch[0], f"{launch[1]}worker.Worker", *words, url)
            self.workers.append(worker)
        return str(url)

    def start(self, name: str, *command: str) -> "subprocess.Popen[bytes]":
        """Start a program in a session of its own."""
        own = {"PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": sys.executable, "FLEXIMQ_TWINS": str(self.folder / "twins")}
        environment = {**os.environ, **own, "JAVA_HOME": str(self.folder / "java")}
        with (self.folder / name).open("wb") as said:
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=said, stderr=said, start_new_session=True
            )
        self.addCleanup(self.end, process)
        return process

    def said(self, name: str = "driver") -> str:
        """Return the output of a program."""
        return (self.folder / name).read_text()

    def end(self, process: "subprocess.Popen[bytes]") -> None:
        """Kill all that is left of a session."""
        for each in sessionOf(process.pid):
            os.kill(each, signal.SIGKILL)
        process.wait(PATIENCE)

    def until(self, process: "subprocess.Popen[bytes]", holds: Any, name: str) -> None:
        """Wait until something holds while a program runs."""
        limit = time.monotonic() + 2 * PATIENCE
        while not holds():
            self.assertIsNone(process.poll(), self.said(name)[-3000:])
            self.assertLess(time.monotonic(), limit, self.said(name)[-3000:])
            time.sleep(0.01)

    def ended(self, process: "subprocess.Popen[bytes]") -> None:
        """See that a program ends in order."""
        try:
            code = process.wait(5 * PATIENCE)
        except subprocess.TimeoutExpired:
            code = -1
        self.assertEqual(code, 0, self.said()[-3000:])

    def assertTwice(self) -> None:
        """Fail unless Spark has run a second attempt in each batch, and both have staged their rows in half of them."""
        (log,) = (self.folder / "events").iterdir()
        events = [json.loads(line) for line in log.read_text().splitlines()]
        began = [each["Task Info"] for each in events if each["Event"] == "SparkListenerTaskStart"]
        second = [each for each in began if each["Speculative"] and each["Index"] == 0]
        self.assertGreaterEqual(len(second), _BATCHES)
        staged = {path.name for path in (self.folder / "twins").iterdir()}
        both = [batch for batch in range(_BATCHES) if {f"{batch}-0-0", f"{batch}-0-1"} <= staged]
        # In other batches the first attempt was killed before it had staged its rows.
        self.assertGreaterEqual(len(both), _BATCHES // 2)
