"""The pipeline that docs/declarative declares, run by ``spark-pipelines`` as the page says."""

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from importlib.util import find_spec
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import fleximq
from fleximq.client.blocking import connect
from tests.nightly import nightly
from tests.pipeline.installed import missing as skip
from tests.pipeline.started_broker import startBroker

if not skip:
    import pyarrow.parquet as pq

    from tests.pipeline.session import sharedSession

ROOT = Path(__file__).parents[2]
COMMAND = Path(sysconfig.get_path("scripts")) / "spark-pipelines"
_WANTED = [name for name in ("pandas", "grpc", "yaml", "zstandard") if find_spec(name) is None]
if not skip and _WANTED:
    skip = f"{' and '.join(_WANTED)} not installed: pip install pyspark[pipelines]"
#: Seconds that a run may take; they only end a hang.
SECONDS = 900


@nightly
class DeclaredTests(SynchronousTestCase):
    """A real broker, whose journal is read and to which is published."""

    def setUp(self) -> None:
        sharedSession()  # skips where there is no Java, and says to this process where one is
        self.folder = Path(tempfile.mkdtemp(prefix="fleximq-declared-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        broker = startBroker(self, self.folder / "journal", "--durable", "$stats/#")
        self.url = f"tcp://127.0.0.1:{broker.port()}"
        shutil.copytree(ROOT / "docs" / "declarative", self.folder / "declared")
        spec = self.folder / "declared" / "spark-pipeline.yml"
        text = spec.read_text()
        for written, meant in (
            ("/tmp/rates/state", str(self.folder / "state")),
            ("/var/lib/fleximq", str(self.folder / "journal")),
            ("tcp://localhost:7890", self.url),
        ):
            self.assertEqual(text.count(written), 1)
            text = text.replace(written, meant)
        spec.write_text(text)

    def runPipeline(self) -> None:
        """Run it to its end, on this machine only."""
        source = str(Path(fleximq.__file__).parents[1])
        settings = {
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.ui.enabled": "false",
            "spark.driver.memory": "1g",
            "spark.sql.shuffle.partitions": "2",
            "spark.sql.catalogImplementation": "hive",
        }
        words = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        found = subprocess.run(
            ["bash", str(COMMAND), "run", "--spec", str(self.folder / "declared" / "spark-pipeline.yml"),
             "--remote", "local[2]", *words],
            cwd=self.folder, timeout=SECONDS, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=os.environ | {
                "PYTHONPATH": source,
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_LOCAL_IP": "127.0.0.1",
                # Lets Spark's server listen on a port that the system chooses, and its client find it.
                "SPARK_TESTING": "1",
            },
        )  # fmt: skip
        self.assertEqual(found.returncode, 0, found.stdout)

    def test_secondRunTakesNewMessagesOnly(self) -> None:
        with connect(self.url) as client:
            client.publish_many("news", ["a", "b", "x" * (1 << 20)])
            client.flush()
            self.runPipeline()
            client.publish_many("sport", ["c"])
            client.flush()
            self.runPipeline()
            with client.subscribe("$stats/largest", from_="first") as deliveries:
                found = deliveries.next(SECONDS)
        assert found is not None
        self.assertEqual((found.value["topic"], found.value["bytes"]), ("news", (1 << 20) + 5))
        rows = pq.read_table(self.folder / "spark-warehouse" / "rates").to_pylist()
        self.assertEqual(sorted((row["topic"], row["messages"]) for row in rows), [("news", 3), ("sport", 1)])
        offsets = pq.read_table(self.folder / "spark-warehouse" / "messages", columns=["offset"])["offset"].to_pylist()
        self.assertEqual(len(offsets), len(set(offsets)))
