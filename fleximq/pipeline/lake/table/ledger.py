"""The range of each journal that a table has: one small file, ``_fleximq/ledger``, replaced by each batch.

Batches are consecutive, so one range is enough: every record of the table's topics in it is a row, except for the
listed gaps. With the number of rows a reader can prove that the table is complete.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from fleximq.pipeline.errors import LakeRefused
from fleximq.pipeline.lake.storage.lake_files import FILES, LakeFiles
from fleximq.pipeline.lake.storage.own_folder import OWN
from fleximq.pipeline.lake.table.file_names import BY_KEY, readRecorded, writeOwn
from fleximq.pipeline.lake.table.format import layoutOf

LEDGER = "ledger"
#: Version of the files in ``_fleximq``.
VERSION = 2
#: Number of batches with dead letters that a ledger names, the last ones.
DEAD_BATCHES = 10


class Gap(NamedTuple):
    """Offsets from ``first`` up to before ``next`` of which records may be missing; ``why`` is a clause. ``lost`` is
    True for damage and records removed before they were ingested, False for regular retention.
    """

    first: int
    next: int
    why: str
    lost: bool


#: Numbers (of rows, or offsets) and gaps by journal.
Counts = Mapping[str, int]
Gaps = Mapping[str, Iterable[Gap]]
NONE: Counts = MappingProxyType({})


class Covered(NamedTuple):
    """Offsets from ``first`` up to before ``next``; numbers of rows, ``expired`` and remaining ``dead`` letters."""

    first: int
    next: int
    rows: int = 0
    gaps: tuple[Gap, ...] = ()
    expired: int = 0
    dead: int = 0

    def _with(self, journal: str, rows: Counts, gaps: Gaps, dead: Counts) -> "Covered":
        return self._replace(
            rows=self.rows + rows.get(journal, 0),
            gaps=tuple(_joined([*self.gaps, *gaps.get(journal, ())])),
            dead=max(0, self.dead + dead.get(journal, 0)),
        )


class DeadLetters(NamedTuple):
    """The dead letters of a batch with so many ``rows``: their number, and the reason of the first one."""

    batch: int
    rows: int
    dead: int
    reason: str

    def __str__(self) -> str:
        return f"batch {self.batch}: {self.dead:,} of {self.rows:,} rows are dead letters; the first: {self.reason}"


@dataclass(frozen=True, slots=True)
class Ledger:
    """``batch`` is the last committed one, -1 before the first, with offsets from ``start`` to ``end``. ``dead`` are
    the last batches with dead letters; ``changes`` counts those by other jobs than ``ingest``.
    """

    batch: int = -1
    start: Counts = field(default_factory=dict)
    end: Counts = field(default_factory=dict)
    journals: Mapping[str, Covered] = field(default_factory=dict)
    dead: tuple[DeadLetters, ...] = ()
    changes: int = 0

    def covers(self, end: Counts) -> bool:
        """Tell whether a batch with this end is committed."""
        return self.batch >= 0 and all(
            journal in self.journals and self.journals[journal].next >= nextOffset
            for journal, nextOffset in end.items()
        )

    def lacks(self, number: int, start: Counts) -> bool:
        """Tell whether the table lacks records before this batch, which begins at ``start``."""
        isNew = self.batch in (-1, number - 1)
        return any(
            self.journals[journal].next < first if journal in self.journals else not isNew
            for journal, first in start.items()
        )

    def withBatch(
        self, batch: int, start: Counts, end: Counts, rows: Counts, gaps: Gaps, dead: Counts = NONE, reason: str = ""
    ) -> "Ledger":
        """Return a ledger with a batch, its rows, gaps and dead letters by journal, and the reason of the first one."""
        journals = dict(self.journals)
        for journal, nextOffset in end.items():
            had = journals.get(journal) or Covered(start.get(journal, nextOffset), start.get(journal, nextOffset))
            journals[journal] = had._replace(next=max(had.next, nextOffset))._with(journal, rows, gaps, dead)
        told = self.dead
        if dead:
            told = (*told, DeadLetters(batch, sum(rows.values()), sum(dead.values()), reason))[-DEAD_BATCHES:]
        return replace(self, batch=batch, start=dict(start), end=dict(end), journals=journals, dead=told)

    def withChange(
        self,
        first: Counts,
        rows: Counts,
        gaps: Gaps,
        dead: Counts,
        expired: Counts = NONE,
        reached: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> "Ledger":
        """Return a ledger after a change: ``first`` are lower first offsets, ``reached`` where the change begins and
        ends after all others, and the rest is to be added by journal.
        """
        new = {journal: Covered(start, start) for journal, (start, _) in reached.items()}
        journals = dict(replace(self, journals={**new, **self.journals}).withExpired(expired).journals)
        for journal in {*first, *rows, *gaps, *dead, *reached}:
            had = journals[journal]._with(journal, rows, gaps, dead)
            nextOffset = reached.get(journal, (0, had.next))[1]
            journals[journal] = had._replace(first=first.get(journal, had.first), next=max(had.next, nextOffset))
        return replace(self, journals=journals, changes=self.changes + 1)

    def withExpired(self, rows: Counts) -> "Ledger":
        """Return a ledger after so many rows of each journal were removed."""
        journals = dict(self.journals)
        for journal, number in rows.items():
            had = journals[journal]
            journals[journal] = had._replace(rows=had.rows - number, expired=had.expired + number)
        return replace(self, journals=journals)


def _joined(gaps: Iterable[Gap]) -> list[Gap]:
    """Return gaps in order; adjacent gaps with the same reason are merged."""
    joined: list[Gap] = []
    for gap in sorted(gaps):
        if joined and gap.first <= joined[-1].next and gap[2:] == joined[-1][2:]:
            gap = joined[-1]._replace(next=max(joined.pop().next, gap.next))
        joined.append(gap)
    return joined


def readLedger(table: str, files: LakeFiles = FILES) -> Ledger:
    """Return a table's ledger, an empty one if it has none; raises LakeRefused if damaged or of a newer version."""

    def read(found: Any) -> Ledger:
        if found["version"] > VERSION:
            path = f"{table}/{OWN}/{LEDGER}"
            raise LakeRefused(f"{path} is of version {found['version']}, and this FlexiMQ knows {VERSION}")
        journals = {
            journal: Covered(**{**covered, "gaps": tuple(Gap(*gap) for gap in covered["gaps"])})
            for journal, covered in found["journals"].items()
        }
        dead = tuple(DeadLetters(*each) for each in found.get("dead", ()))
        return Ledger(found["batch"], found["start"], found["end"], journals, dead, found.get("changes", 0))

    return readRecorded(table, LEDGER, read, files) or Ledger()


def writeLedger(table: str, ledger: Ledger, files: LakeFiles = FILES) -> None:
    """Replace a table's ledger atomically; raises OSError if it cannot be written."""
    found = {"version": VERSION, **{each.name: getattr(ledger, each.name) for each in fields(ledger)}}
    found["journals"] = {journal: covered._asdict() for journal, covered in sorted(ledger.journals.items())}
    writeOwn(table, LEDGER, found, files)


def checkIsNew(table: str, files: LakeFiles = FILES) -> None:
    """Raise LakeRefused if a table has rows by its ledger, so that another program has removed its log."""
    # A table of the latest rows may have removed keys that it never had, without its log.
    isByKey = layoutOf(table, files) == BY_KEY
    rows = sum(each.rows + (0 if isByKey else each.expired) for each in readLedger(table, files).journals.values())
    if rows:
        raise LakeRefused(
            f"the table {table} has had {rows} rows, but the log of its format, or its entry in the catalog, is gone: "
            "put it back, or give the table another name"
        )
