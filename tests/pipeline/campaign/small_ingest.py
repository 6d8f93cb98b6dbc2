"""An ingest without Spark, with the words of ``fleximq-pipeline ingest``: it starts in a second, so many can be killed.

It commits batches by the same classes as the ingest does; what tasks of Spark do, it does itself.
"""

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import replace

from fleximq.errors import JournalError
from fleximq.pipeline.errors import PipelineError
from fleximq.pipeline.files.journal_files import JournalFiles
from fleximq.pipeline.lake.catch_up import CatchUp
from fleximq.pipeline.lake.compaction import compact
from fleximq.pipeline.lake.ingest_driver import TableIngest
from fleximq.pipeline.lake.table.table_log import CompactionGoal
from fleximq.pipeline.lake.table.table_spec import TableSpec, tableOf
from fleximq.pipeline.reader.source_options import SourceOptions

#: The most messages of a batch, seconds between two looks at the journal, and batches between two compactions.
MOST, LOOK, AGAIN = 10_000, 0.2, 10
#: More offsets than messages that wait.
LEAP = 100_000_000


def ingest(lake: str, specs: Sequence[TableSpec], tableFormat: str, folder: str, once: bool) -> None:
    """Ingest a journal's folder; raises LakeRefused, and OSError."""
    journal = JournalFiles(folder)
    missed = CatchUp(SourceOptions.of({"path": folder})).add
    with TableIngest(lake, specs, {"format": tableFormat}, False, missed=missed) as tables:
        number, offsets = tables.reachedTogether()
        tables.beginAt(offsets or {journal.id: 1})
        print(f"ingesting into {lake}", flush=True)
        reached = offsets.get(journal.id, 1)
        while True:
            end = journal.end().offset
            # A broker that was killed leaves out a thousand million offsets.
            if end - reached < LEAP:
                end = min(end, reached + MOST)
            if end > reached:
                # The batch before this number is added.
                tables.catchUp(number + 2, {journal.id: end})
                if tables.behind:
                    print(tables.behind, flush=True)
                number, reached = number + 1, end
                if number % AGAIN == 0:
                    for spec in specs:
                        list(compact(f"{lake}/{spec.name}", CompactionGoal(1 << 20, 0.0, 3)))
            elif once:
                return
            else:
                time.sleep(LOOK)


def main() -> int:
    """Run as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("job")
    parser.add_argument("--once", action="store_true")
    for name in ("table", "integers"):
        parser.add_argument(f"--{name}", action="append")
    for name in ("lake", "journal", "format", "schema"):
        parser.add_argument(f"--{name}", default="")
    given, _ = parser.parse_known_args()
    more = {"integers": tuple(given.integers)} | ({"schema": given.schema} if given.schema else {})
    specs = [replace(tableOf("table", written), **more) for written in given.table]
    try:
        ingest(given.lake, specs, given.format, given.journal, given.once)
    except (PipelineError, JournalError, OSError) as error:
        print(f"it ended: {error}", flush=True)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
