"""An Iceberg table with a few batches, for tests of what becomes of it."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing

skip = missing
if not skip and (find_spec("pyiceberg") is None or find_spec("sqlalchemy") is None):
    skip = "pyiceberg[sql-sqlite] is not installed"

if not skip:
    from pyiceberg.catalog.sql import SqlCatalog

    from fleximq.pipeline import lake
    from fleximq.pipeline.lake.iceberg import catalogOf
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, commit, makeTable, rows

#: The topic of all rows, and the folder of its first day.
TOPIC = "a'b %"
FIRST = "fleximq_topic=a%27b%20%25/date=2023-11-14"


class IcebergCase(SynchronousTestCase):
    """``table`` has four batches: rows 1 to 8 of a topic with a quote, and 9 to 16 of the next day."""

    def setUp(self) -> None:
        self.lake = str(Path(self.mktemp()).absolute())
        self.table = f"{self.lake}/messages"
        makeTable(self.table, "iceberg", "topic")
        self.batches = 0
        for _ in range(4):
            self.publish(TIME if self.batches < 2 else TIME + DAY)

    def publish(self, time: int = 1_700_000_000_000_000 + 86_400_000_000) -> None:
        """Publish four more rows."""
        self.publishAgain(self.batches, time)
        self.batches += 1

    def publishAgain(self, number: int, time: int) -> bool:
        """Publish a batch; return whether it was new."""
        start = number * 4 + 1
        return commit(self.table, number, rows(range(start, start + 4), TOPIC, time))

    @property
    def all(self) -> list[int]:
        """All offsets that were published."""
        return list(range(1, self.batches * 4 + 1))

    def opened(self) -> Any:
        """Return the table as it is now."""
        return catalogOf(self.lake, None).load_table(("lake", "messages"))

    def offsets(self, found: Any = None) -> list[int]:
        """Return the offsets that a reader of the format finds."""
        found = self.opened() if found is None else found
        offsets: list[int] = sorted(found.scan().to_arrow().column("offset").to_pylist())
        return offsets

    def named(self) -> set[str]:
        """Return the files that a reader of the table as it is now reads."""
        return {task.file.file_path.removeprefix("file://") for task in self.opened().scan().plan_files()}

    def files(self) -> set[str]:
        """Return the files of days that are on disk."""
        return {str(path) for path in Path(self.table).glob("*topic=*/date=*/*.parquet")}

    def whole(self) -> None:
        """See that every row is there once, and that the ledger has them all."""
        self.assertEqual(self.offsets(), self.all)
        self.assertEqual(lake.ranges(self.table)[JOURNAL].rows, len(self.all))

    def atCommits(self, step: Callable[[int], None], after: bool = False) -> None:
        """Do something before each commit to the catalog, or behind it; it takes the number of the commit."""
        real = SqlCatalog.commit_table
        number = 0

        def commit(catalog: Any, *arguments: Any) -> Any:
            nonlocal number
            number += 1
            if not after:
                step(number)
            done = real(catalog, *arguments)
            if after:
                step(number)
            return done

        self.patched = self.patch(SqlCatalog, "commit_table", commit)
