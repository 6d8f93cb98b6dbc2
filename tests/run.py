"""Runs trial over the tests and says at the end, on a line of its own, how many passed.

``python -m tests.run`` runs everything below ``tests``; names of packages, modules, classes or tests may follow.
The totals come from trial's own result: ``120 passed, 0 failed`` or ``118 passed, 1 failed, 1 skipped``. Errors,
failures and unexpected successes count as failed; skips and expected failures as skipped. The exit code is 0 only
if something passed and nothing failed.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from twisted.trial.reporter import Reporter, TreeReporter
from twisted.trial.runner import TestLoader, TrialRunner


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

    @property
    def green(self) -> bool:
        """Whether the run is a success: a run without any passed test is none."""
        return self.failed == 0 and self.passed > 0

    def __str__(self) -> str:
        skipped = f", {self.skipped} skipped" if self.skipped else ""
        return f"{self.passed} passed, {self.failed} failed{skipped}"


def main(arguments: Sequence[str]) -> int:
    """Run what the command line names, print the totals and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.run", description="Run the tests with trial.")
    parser.add_argument("names", nargs="*", default=["tests"], help="dotted names; default: tests")
    parser.add_argument("--totals", type=Path, help="a file that the totals are written to as well")
    parser.add_argument("--temp-directory", default="_trial_temp", help="where the tests run")
    options = parser.parse_args(arguments)
    result = TrialRunner(TreeReporter, workingDirectory=options.temp_directory).run(
        TestLoader().loadByNames(options.names, recurse=True)
    )
    totals = Totals.of(result)
    if options.totals is not None:
        options.totals.write_text(f"{totals}\n")
    print(totals, flush=True)
    return 0 if totals.green else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
