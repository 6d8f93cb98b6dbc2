"""Runs trial over the tests in several processes, and prints the totals on a line of their own.

``python -m tests.run`` runs everything below ``tests``; names of packages, modules, classes or tests may follow. Each
``--beside "NAMES"`` runs the tests it names in another process, whose output follows that of the first one; the first
two have priority over all others, so they should name the longest. ``--without "NAMES"`` leaves tests out.
``--meanwhile "COMMAND"`` runs any other command in the same way; it counts as one failure unless it exits with 0.
trial's own ``-j`` hands single tests to its workers, so that a Spark session would start in each of them.
The totals come from trial's own result: ``120 passed, 0 failed`` or ``118 passed, 1 failed, 1 skipped``. Errors,
failures and unexpected successes count as failed; skips and expected failures as skipped. The exit code is 0 only
if something passed and nothing failed.
Directly before the totals are the failed tests of all processes: the end of each traceback, then all names.
``--totals FILE`` writes the totals to a file, and these failures to ``FILE.failures``.
"""

import argparse
import atexit
import gc
import os
import pkgutil
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from hypothesis import HealthCheck, settings
from twisted.python.failure import Failure
from twisted.trial import util
from twisted.trial.reporter import Reporter, TreeReporter
from twisted.trial.runner import TestLoader, TrialRunner

#: What is run if nothing is named.
ALL = "tests"
#: How many groups, the longest, go before the others, and how much; the unit is that of ``nice``.
URGENT, COURTESY = 2, 2
#: The tests run in this folder, which is in memory, if it has so many bytes: many would wait for a disk.
MEMORY, ROOMY = Path("/dev/shm"), 4 << 30
#: How many lines of a traceback, or of what a command has printed, are shown at the end, and how long each may be.
LINES, COLUMNS = 25, 500
#: Seconds after which a test that waits for a Deferred has failed: it only ends a hang.
HANGS = 900.0
#: How the name of a failed test begins in the list of failures.
FAILED = "FAILED "
#: Matches the line of totals.
_TOTALS = re.compile(r"\d+ passed, \d+ failed(, \d+ skipped)?$").match


class Totals(NamedTuple):
    """How a run ended; as text it is the line that is printed last."""

    passed: int
    failed: int
    skipped: int

    @classmethod
    def of(cls, result: Reporter) -> "Totals":
        """Count what trial has collected in its result."""
        return cls(
            passed=result.successes,
            failed=len(result.errors) + len(result.failures) + len(result.unexpectedSuccesses),
            skipped=len(result.skips) + len(result.expectedFailures),
        )

    @classmethod
    def parse(cls, line: str) -> "Totals":
        """Read what :meth:`__str__` has written; anything else counts as a failure, for then a run did not end."""
        found = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed|skipped)", line)}
        return cls(**{"skipped": 0, **found}) if {"passed", "failed"} <= set(found) else cls(0, 1, 0)

    def __add__(self, other: object) -> "Totals":
        """Return the totals of two runs together."""
        if not isinstance(other, Totals):
            return NotImplemented
        return Totals(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))

    @property
    def green(self) -> bool:
        """Whether the run is a success: a run without any passed test is none."""
        return self.failed == 0 and self.passed > 0

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def parts(
    names: Sequence[str], groups: Sequence[Sequence[str]], without: Sequence[str] = ()
) -> tuple[list[str], list[list[str]]]:
    """Return the names that run in this process, and the groups that run in processes of their own.

    A package of which a group names only a part is replaced by its parts, in each process. There are no groups, and
    all is run that is named, where only some tests are asked for.

    :param without: names that are not run.
    """
    if list(names) != [ALL]:
        return list(names), []
    elsewhere = {name for group in (*groups, without) for name in group}
    return remaining(ALL, elsewhere), [
        [part for name in group for part in remaining(name, elsewhere - {name})] for group in groups
    ]


def remaining(name: str, elsewhere: Collection[str]) -> list[str]:
    """Return this name, or what is left of its package without the names that run elsewhere."""
    if not any(other.startswith(f"{name}.") for other in elsewhere) and name != ALL:
        return [name]
    modules = pkgutil.iter_modules([str(Path(__file__).parents[1].joinpath(*name.split(".")))], f"{name}.")
    return [
        part
        for module in modules
        if (module.ispkg or module.name.rpartition(".")[2].startswith("test_")) and module.name not in elsewhere
        for part in remaining(module.name, elsewhere)
    ]


def totalsOf(exitCode: int, printed: str) -> Totals | None:
    """Return the totals that a run of tests has printed; programs that a test has left behind may print after them."""
    line = next(filter(_TOTALS, reversed(printed.splitlines())), None)
    return None if line is None else Totals.parse(line)


def endingOf(exitCode: int, printed: str) -> Totals | None:
    """Return the totals of a command that runs no tests."""
    return Totals(0, 0, 0) if exitCode == 0 else None


def failure(name: str, trace: str) -> str:
    """Return the name of a failed test or command, and the end of its traceback or output."""
    lines = [line[:COLUMNS] for line in trace.rstrip().splitlines()[-LINES:]]
    return "\n".join([f"{FAILED}{name}", *(f"    {line}" for line in lines), ""])


def failuresOf(result: Reporter) -> str:
    """Return what trial has collected of failed tests."""
    failed = [
        (test, error.getTraceback() if isinstance(error, Failure) else error)
        for test, error in [*result.errors, *result.failures]
    ]
    failed += [(test, "passed, but is marked as todo") for test, *_ in result.unexpectedSuccesses]
    return "".join(failure(test.id(), trace) for test, trace in failed)


def summary(failures: str) -> str:
    """Return the failures of all processes, and then their names once more, so that none is far from the end."""
    return failures + "".join(line for line in failures.splitlines(keepends=True) if line.startswith(FAILED))


@contextmanager
def running(
    command: Sequence[str], failures: Path, count: Callable[[int, str], Totals | None]
) -> Iterator[list[Totals]]:
    """Run a command in another process; the yielded list has its totals after the end of the block.

    A command without totals is one failure, which is added to the file of failures with the end of its output.
    """
    totals: list[Totals] = []
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
        try:
            yield totals
            process.wait()
        finally:
            process.kill()
            process.wait()
        output.seek(0)
        printed = output.read()
    print(printed, flush=True)
    counted = count(process.returncode, printed)
    if counted is None:
        with failures.open("a", errors="backslashreplace") as file:
            file.write(failure(shlex.join(command), printed))
    totals.append(counted or Totals(0, 1, 0))


def temporaryFolder() -> str:
    """Make the folder of all temporary files, which is removed with the process, and return one for trial in it."""
    isRoomy = MEMORY.is_dir() and shutil.disk_usage(MEMORY).free >= ROOMY
    folder = tempfile.mkdtemp(prefix="fleximq-tests-", dir=MEMORY if isRoomy else None)
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TMPDIR"] = tempfile.tempdir = folder
    return f"{folder}/trial"


def main(arguments: Sequence[str]) -> int:
    """Run what the command line names, print the totals and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description="Run the tests with trial.")
    parser.add_argument("names", nargs="*", default=[ALL], help="dotted names; default: tests")
    parser.add_argument(
        "--beside", action="append", default=[], type=str.split, help="names that run in another process meanwhile"
    )
    parser.add_argument("--without", default=[], type=str.split, help="names that are not run")
    parser.add_argument(
        "--meanwhile", action="append", default=[], type=shlex.split, help="a command that runs in another process"
    )
    parser.add_argument("--totals", type=Path, help="a file that the totals are written to as well")
    parser.add_argument("--failures", type=Path, help="a file that failures are added to; default: they are printed")
    parser.add_argument("--temp-directory", help="where the tests run; default: a new folder, in memory if it is roomy")
    options = parser.parse_args(arguments)
    options.temp_directory = options.temp_directory or temporaryFolder()
    # A background job of a shell starts with SIGINT ignored, and so would all programs that the tests interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # The processor may be busy with other things: how long an example takes shows nothing.
    settings.register_profile("busy", settings.default, deadline=None, suppress_health_check=[HealthCheck.too_slow])
    settings.load_profile("busy")
    failures = options.failures or Path(f"{options.totals or options.temp_directory}.failures").absolute()
    if options.failures is None:
        failures.write_text("")
    util.DEFAULT_TIMEOUT_DURATION = HANGS
    here, groups = parts(options.names, options.beside, options.without)
    with ExitStack() as processes:
        others = []
        for number, group in enumerate(groups):
            command = [sys.executable, "-m", "tests.run", "--temp-directory", f"{options.temp_directory}-{number}"]
            command += ["--failures", str(failures)]
            others.append(processes.enter_context(running([*command, *group], failures, totalsOf)))
            if number + 1 == min(URGENT, len(groups)):
                os.nice(COURTESY)
        others += [processes.enter_context(running(command, failures, endingOf)) for command in options.meanwhile]
        tests = TestLoader().loadByNames(here, recurse=True)
        gc.collect()
        gc.freeze()  # Or each collection would traverse all that was imported: an eighth of the processor time.
        result: Any = TrialRunner(TreeReporter, workingDirectory=options.temp_directory).run(tests)
    totals = sum(chain.from_iterable(others), Totals.of(result))
    with failures.open("a", errors="backslashreplace") as file:
        file.write(failuresOf(result))
    if options.failures is None:
        failures.write_text(summary(failures.read_text()))
        print(failures.read_text(), end="")
    if options.totals is not None:
        options.totals.write_text(f"{totals}\n")
    print(totals, flush=True)
    return 0 if totals.green else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
