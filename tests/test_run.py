"""The totals line tells what trial saw, and only a green run exits with 0."""

import os
import subprocess
import sys
import tempfile
from io import StringIO
from pathlib import Path

from twisted.trial import reporter
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.run import ALL, LINES, MEMORY, ROOMY, Totals, failure, failuresOf, parts, summary

ROOT = Path(__file__).parents[1]


class _Sample(SynchronousTestCase):
    """One test of each ending; run by the tests below, never by the loader, since its name is private."""

    def passes(self) -> None:
        """Ends well."""

    def fails(self) -> None:
        """Ends with a failed expectation."""
        self.assertEqual(1, 2)

    def breaks(self) -> None:
        """Ends with an exception."""
        raise ZeroDivisionError("on purpose")

    def skips(self) -> None:
        """Does not want to run."""
        raise SkipTest("on purpose")

    def fallsShort(self) -> None:
        """Fails, as is known."""
        self.assertEqual(1, 2)

    fallsShort.todo = "known"  # type: ignore[attr-defined]

    def surprises(self) -> None:
        """Passes, though it is known to fail."""

    surprises.todo = "known"  # type: ignore[attr-defined]


def _result(*names: str) -> reporter.Reporter:
    result = reporter.TreeReporter(StringIO())
    for name in names:
        _Sample(name).run(result)
    return result


def _totals(*names: str) -> Totals:
    return Totals.of(_result(*names))


class TotalsTests(SynchronousTestCase):
    """How a result is counted."""

    def test_failedTestsHaveNameAndEndOfTraceback(self) -> None:
        """Failures, errors and unexpected successes are listed, with the last lines of their tracebacks."""
        result = _result("passes", "fails", "skips", "breaks", "surprises")
        listed = failuresOf(result).splitlines()
        name = f"FAILED {__name__}._Sample"
        found = {line.removeprefix(name) for line in listed if line.startswith(name)}
        self.assertEqual(found, {".fails", ".breaks", ".surprises"})
        self.assertIn("    builtins.ZeroDivisionError: on purpose", listed)
        self.assertLessEqual(len(listed), 3 * (1 + LINES))

    def test_longTracebackIsCutAtItsBeginning(self) -> None:
        """The last lines of a traceback say most."""
        listed = failure("tests.some", "\n".join(f"line {number}" for number in range(LINES + 1))).splitlines()
        self.assertEqual((listed[:2], len(listed)), (["FAILED tests.some", "    line 1"], 1 + LINES))

    def test_summaryEndsWithAllNames(self) -> None:
        """All names follow the last traceback."""
        text = failure("tests.one", "why") + failure("tests.two", "because")
        self.assertEqual(summary(text).splitlines()[-2:], ["FAILED tests.one", "FAILED tests.two"])

    def test_everyEnding(self) -> None:
        """Each ending of a test is counted once, in its place."""
        endings = {
            "passes": Totals(1, 0, 0),
            "fails": Totals(0, 1, 0),
            "breaks": Totals(0, 1, 0),
            "skips": Totals(0, 0, 1),
            "fallsShort": Totals(0, 0, 1),
            "surprises": Totals(0, 1, 0),
        }
        self.assertEqual({name: _totals(name) for name in endings}, endings)

    def test_text(self) -> None:
        """The line names passed and failed always, skipped only where there are some."""
        self.assertEqual(str(Totals(3, 0, 0)), "3 passed, 0 failed")
        self.assertEqual(str(Totals(3, 1, 2)), "3 passed, 1 failed, 2 skipped")

    def test_green(self) -> None:
        """A run is green if something passed and nothing failed."""
        self.assertTrue(Totals(1, 0, 1).green)
        self.assertFalse(Totals(1, 1, 0).green)

    def test_backAgain(self) -> None:
        """What was written is read; what is none of it counts as a failure."""
        for totals in (Totals(3, 0, 0), Totals(3, 1, 2)):
            self.assertEqual(Totals.parse(str(totals)), totals)
        self.assertEqual(Totals.parse("MemoryError"), Totals(0, 1, 0))

    def test_together(self) -> None:
        """Two runs are counted as one."""
        self.assertEqual(Totals(1, 2, 3) + Totals(10, 20, 30), Totals(11, 22, 33))

    def test_nothingIsNotGreen(self) -> None:
        """A run in which no test passed shows nothing."""
        self.assertFalse(Totals(0, 0, 1).green)


class PartsTests(SynchronousTestCase):
    """What runs beside the rest."""

    def test_all(self) -> None:
        """Everything is run once, here or there."""
        here, groups = parts([ALL], [["tests.pipeline"], ["tests.cli", "tests.client"]])
        self.assertEqual(groups, [["tests.pipeline"], ["tests.cli", "tests.client"]])
        there = [name for group in groups for name in group]
        tests = {path.stem if path.is_file() else path.name for path in (ROOT / "tests").iterdir()}
        wanted = {
            f"tests.{name}"
            for name in tests
            if name.startswith("test_") or (ROOT / "tests" / name / "__init__.py").exists()
        }
        self.assertEqual(set(here) | set(there), wanted)
        self.assertEqual(len(here) + len(there), len(wanted))

    def test_partOfPackage(self) -> None:
        """A package of which one part runs elsewhere is replaced by its other parts, wherever it runs."""
        here, groups = parts([ALL], [["tests.cli.bench"], ["tests.client"]])
        self.assertIn("tests.cli.client_commands", here)
        self.assertNotIn("tests.cli", here)
        here, groups = parts([ALL], [["tests.cli.bench"], ["tests.cli"]])
        self.assertEqual(groups[0], ["tests.cli.bench"])
        self.assertIn("tests.cli.client_commands", groups[1])
        self.assertEqual([name for name in [*here, *groups[1]] if name.startswith("tests.cli.bench")], [])

    def test_some(self) -> None:
        """Where names are given, nothing runs beside them."""
        self.assertEqual(parts(["tests.wire"], [["tests.pipeline"]]), (["tests.wire"], []))

    def test_nothingIsRunThatIsLeftOut(self) -> None:
        """A package, and a part of one that a group names, are left out, unless they are asked for."""
        here, [group] = parts([ALL], [["tests.cli"]], ["tests.pipeline", "tests.cli.bench"])
        self.assertEqual([name for name in (*here, *group) if name.startswith(("tests.pipeline", "tests.cli.b"))], [])
        self.assertIn("tests.cli.client_commands", group)
        self.assertEqual(parts(["tests.pipeline"], [], ["tests.pipeline"]), (["tests.pipeline"], []))


class MainTests(SynchronousTestCase):
    """The runner as a program, on names of which the outcome is known."""

    def run_(self, *names: str) -> tuple[int, str, str]:
        """Return the exit code, the last line printed and what stands in the file of totals."""
        path = Path(self.mktemp()).absolute()
        self.failures = Path(f"{path}.failures")
        options = ["--totals", str(path), "--temp-directory", f"{path}.trial"]
        command = [sys.executable, "-m", "tests.run", *options, *names]
        ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=600)
        return ended.returncode, ended.stdout.decode().splitlines()[-1], path.read_text()

    def test_success(self) -> None:
        """A green run exits with 0; its totals are printed last and written to the file."""
        code, last, written = self.run_("tests.test_run.TotalsTests.test_text")
        self.assertEqual((code, last, written), (0, "1 passed, 0 failed", "1 passed, 0 failed\n"))

    def test_failureBesideIsCountedAndNamedBeforeTheTotals(self) -> None:
        """A part that fails beside the rest is counted; its name is on the line before the totals."""
        source = (
            "import tests.run as run\n"
            "run.parts = lambda *_: (['tests.test_run.TotalsTests.test_text'], [['tests.nowhere']])\n"
            "raise SystemExit(run.main(['--temp-directory', 'trial']))\n"
        )
        folder = self.mktemp()
        Path(folder).mkdir()
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        ended = subprocess.run(
            [sys.executable, "-c", source], cwd=folder, env=environment, capture_output=True, timeout=600
        )
        lines = ended.stdout.decode().splitlines()
        self.assertEqual((ended.returncode, lines[-1]), (1, "1 passed, 1 failed"))
        self.assertEqual(lines[-2], "FAILED tests.nowhere")
        self.assertIn("0 passed, 1 failed", lines)

    def test_meanwhile(self) -> None:
        """A command that runs beside the tests is one failure unless it succeeds."""
        for command, totals in (("true", "1 passed, 0 failed"), ("sh -c 'exit 3'", "1 passed, 1 failed")):
            code, last, _ = self.run_("--meanwhile", command, "tests.test_run.TotalsTests.test_text")
            self.assertEqual((code, last), (int(command != "true"), totals))

    def test_outputOfFailedCommandIsWrittenBesideTheTotals(self) -> None:
        """The file of failures has the command line and the end of the output; after a green run it is empty."""
        for command, wanted in (("true", ""), ("sh -c 'echo on purpose; exit 3'", "    on purpose\n")):
            self.run_("--meanwhile", command, "tests.test_run.TotalsTests.test_text")
            self.assertEqual(self.failures.read_text().partition("\n")[2].partition("FAILED")[0], wanted)

    def test_folder(self) -> None:
        """Temporary files are in memory if there is room, and none is left."""
        roomy = (ROOMY, MEMORY) if MEMORY.is_dir() else (0, Path(self.mktemp()).absolute())
        for bytesOfRoom, folder in (roomy, (1 << 60, Path(tempfile.gettempdir()))):
            folder.mkdir(exist_ok=True)
            source = (
                "import atexit, os, pathlib, tempfile, tests.run as run\n"
                f"run.ROOMY, run.MEMORY = {bytesOfRoom}, pathlib.Path({str(folder)!r})\n"
                "run.temporaryFolder()\n"
                "path = tempfile.mkstemp()[1]\n"
                "print(path, os.environ['TMPDIR'])\n"
            )
            ended = subprocess.run(
                [sys.executable, "-c", source], cwd=ROOT, capture_output=True, text=True, timeout=600
            )
            path, parent = map(Path, ended.stdout.split())
            self.assertEqual((path.parent, parent.parent, parent.exists()), (parent, folder, False))

    def test_unknownName(self) -> None:
        """A name that cannot be loaded is a failure, not an empty run."""
        code, last, _ = self.run_("tests.there_is_no_such_module")
        self.assertEqual((code, last), (1, "0 passed, 1 failed"))
