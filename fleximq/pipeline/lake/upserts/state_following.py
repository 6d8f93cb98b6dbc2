"""Updates tables of the latest rows from the journals at intervals, in a thread of an ingest, or until stopped.

If the update of a table fails, the table is *left behind* until a later update succeeds; the others continue.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import Event

from fleximq.pipeline.command.job_run import JobRun
from fleximq.pipeline.errors import DeadLettersFound, LakeRefused, LeftBehind
from fleximq.pipeline.lag import Reporter
from fleximq.pipeline.lake.batch_commit import BEHIND, exclusive, readBehind
from fleximq.pipeline.lake.live_files import logOf
from fleximq.pipeline.lake.meanwhile import meanwhile, whyFailed
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.table.file_names import writeOwn
from fleximq.pipeline.lake.table.ledger import readLedger
from fleximq.pipeline.lake.table.table_spec import TableSpec
from fleximq.pipeline.lake.upserts.state_ingest import StateIngest

#: Seconds between two deletions of the files that changes have replaced.
CLEAN = 600.0
#: The number of records for which a line of progress is written, also if there are few dead letters.
_MANY = 100_000


class StateFollowing:
    """Updates the tables of one entered ingest. ``strict`` allows no dead letters; ``now`` is in seconds since 1970."""

    def __init__(
        self,
        ingest: StateIngest,
        lake: str,
        run: JobRun,
        strict: bool = False,
        reporter: Reporter | None = None,
        files: LakeFiles = FILES,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._ingest, self._lake, self._run, self._files, self._now = ingest, lake, run, files, now
        self._strict, self._reporter = strict, reporter
        self._dead = self._records = 0
        self._cleaned = now()
        told = {spec.name: readBehind(f"{lake}/{spec.name}", files) for spec in ingest.specs}
        self.behind = {name: why for name, why in told.items() if why}

    def once(self) -> None:
        """Update all tables up to the records that exist now; raises LeftBehind if one update fails."""
        self.advance(self._run.stopping.is_set)
        self._run.writeLine(f"{self._records} records are in")
        if self.behind:
            raise LeftBehind(f"tables were left behind: {', '.join(self.behind)}; {next(iter(self.behind.values()))}")
        self.checkDead()

    def checkDead(self) -> None:
        """Raise DeadLettersFound if there are dead letters that are not allowed."""
        if self._strict and self._dead:
            raise DeadLettersFound(f"{self._dead} messages became dead letters, which --strict does not allow")

    def until(self, ending: Event, seconds: float) -> None:
        """Update the tables at this interval until the event is set; raises DeadLettersFound."""
        while True:
            self.advance(ending.is_set)
            self.checkDead()
            if ending.wait(seconds):
                return

    @contextmanager
    def beside(self, seconds: float) -> Iterator[None]:
        """Update the tables in a thread for the length of a ``with`` block; raises DeadLettersFound at its end."""

        def follow(ending: Event) -> None:
            with suppress(DeadLettersFound):
                self.until(ending, seconds)
                return
            self._run.stopping.set()

        with meanwhile("upserts", follow):
            yield
        self.checkDead()

    def advance(self, isEnding: Callable[[], bool]) -> None:
        """Update each table once, unless the run ends."""
        for spec in self._ingest.specs:
            if isEnding():
                return
            try:
                self._advance(spec, isEnding)
                self._setBehind(spec.name, "")
            except Exception as error:
                # The ingest continues even after an error of a library: the next update may succeed.
                self._setBehind(spec.name, whyFailed(error))
        if self._now() - self._cleaned >= CLEAN:
            self._cleaned = self._now()
            self._cleanUp()

    def _advance(self, spec: TableSpec, isEnding: Callable[[], bool]) -> None:
        for done in self._ingest.advance(spec, isEnding):
            self._records += done.records
            self._dead += done.dead
            if done.dead:
                told = f"{done.dead:,} of {done.records:,} records are dead letters; the first: {done.reason}"
                self._run.writeLine(f"table {spec.name}: {told}")
            elif done.records >= _MANY:
                self._run.writeLine(f"table {spec.name}: {done.records:,} records up to offset {done.next}")
        if self._reporter is not None:
            self._report(self._reporter)

    def _report(self, reporter: Reporter) -> None:
        reached: dict[str, int] = {}
        dead: dict[str, int] = {}
        for spec in self._ingest.specs:
            for journal, covered in readLedger(f"{self._lake}/{spec.name}", self._files).journals.items():
                reached[journal] = min(reached.get(journal, covered.next), covered.next)
                dead[journal] = dead.get(journal, 0) + covered.dead
        reporter.report(reached, {}, dead)

    def _setBehind(self, name: str, why: str) -> None:
        """Record why the last update of a table failed, "" if it did not, and write a line when that changes."""
        had = self.behind.pop(name, "")
        if why:
            self.behind[name] = why
        if why == had:
            return
        table = f"{self._lake}/{name}"
        # In an object store another ingest may have taken the table over; this one goes on with its other tables.
        with suppress(OSError, LakeRefused):
            if why:
                writeOwn(table, BEHIND, [why], self._files)
            else:
                self._files.removeOwn(table, BEHIND)
        said = f"warning: table {name} is left behind: {why}" if why else f"table {name} has all messages again"
        self._run.writeLine(said)

    def _cleanUp(self) -> None:
        """Delete files that changes have replaced a while ago."""
        for spec in self._ingest.specs:
            table = f"{self._lake}/{spec.name}"
            try:
                if (log := logOf(table, self._files)) is not None:
                    log.cleanUp(self._now(), self._files, partial(exclusive, table, self._files))
            except (LakeRefused, OSError) as error:
                name = os.path.basename(table)
                self._run.writeLine(f"table {name}: replaced files are not deleted this time: {error}")
