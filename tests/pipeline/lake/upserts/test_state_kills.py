"""An ingest of a table of the latest rows is killed at random moments: the table is that of the model."""

import os
import random
import time
from pathlib import Path
from threading import Event, Thread
from unittest import SkipTest

from tests.nightly import nightly, repetitions
from tests.pipeline.lake.upserts.state_case import StateCase, skip

if not skip:
    from fleximq.pipeline.command import java
    from fleximq.pipeline.lake import audit
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.live_files import liveFiles, rowGroups
    from fleximq.pipeline.lake.table.ledger import readLedger
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from tests.pipeline.end_to_end import PATIENCE, Ingest

#: Another order of what happens is tried with this variable in the environment.
SEED = int(os.environ.get("FLEXIMQ_LAKE_SEED", "7"))
#: The job with small changes and buckets, so that kills meet many of them.
_SMALL = """
import sys
from fleximq.pipeline import main
from fleximq.pipeline.lake.upserts import bucket_merge, state_ingest, state_table
bucket_merge.BUCKET_BYTES, state_table.CHANGE_BYTES, state_ingest.SLICE_BYTES = 20_000, 10_000, 5_000
sys.exit(main.main(sys.argv[1:]))
"""

#: The most messages that wait: they are hundreds of small changes.
_BACKLOG = 2000


class KillTests(StateCase):
    """In Delta Lake; the table is compacted, and the journal grows, meanwhile."""

    def setUp(self) -> None:
        super().setUp()
        self.chance = random.Random(SEED)
        self.folder = Path(self.lake).parent
        self.folder.mkdir(parents=True, exist_ok=True)
        self.lake, self.table = f"{self.folder}/lake", f"{self.folder}/lake/state"
        self.also: tuple[str, ...] = ()

    def started(self, *words: str) -> "Ingest":
        """Start an ingest, with small changes unless there are words for it."""
        common = ("--journal", self.written.folder, "--format", self.tableFormat, "--table", self.words)
        small = () if words else ("-c", _SMALL)
        words = (*common, *self.also, "--upsert-every", "20ms", *words)
        return Ingest(self.folder, *words, program=small or ("-m", "fleximq.pipeline"))

    def changes(self) -> int:
        """Return the number of the last change."""
        return readLedger(self.table).changes

    def campaign(self, kills: int) -> None:
        """Publish, ingest, kill and compare."""
        ending = Event()

        def publish() -> None:
            while not ending.wait(0.02):
                reached = max((each.next for each in readLedger(self.table).journals.values()), default=0)
                if self.written.next - reached < _BACKLOG:
                    self.some(20, keys=300)

        publisher = Thread(target=publish)
        publisher.start()
        ingest = self.started()
        try:
            for _ in range(kills):
                before, deadline = self.changes(), time.monotonic() + PATIENCE
                while self.changes() == before:
                    self.assertTrue(ingest.running())
                    self.assertLess(time.monotonic(), deadline)
                    time.sleep(0.002)
                list(compact(self.table, CompactionGoal()))
                time.sleep(self.chance.uniform(0, 0.1))
                ingest.kill("all")
                ingest = self.started()
        finally:
            ending.set()
            publisher.join(PATIENCE)
            ingest.kill("all")
        self.started("--once").wait()
        self.look()

    def test_killsLoseAndRepeatNothing(self) -> None:
        self.campaign(repetitions(3, 50))

    @nightly
    def test_killsLoseAndRepeatNothingInIceberg(self) -> None:
        self.tableFormat = "iceberg"
        self.campaign(50)

    @nightly
    def test_killsOfAnIngestThatSparkFeedsAsWell(self) -> None:
        """The same ingest writes all changes to another table with Spark."""
        try:
            java.find()
        except java.NoJava as error:
            raise SkipTest(str(error)) from None
        self.also = ("--table", "changes=devices.#:json", "--trigger", "500ms", "--max-offsets", "500")
        self.campaign(5)
        changes = f"{self.lake}/changes"
        offsets = [
            offset
            for path, topic in liveFiles(changes)
            for rows in rowGroups(changes, path, topic)
            for offset in rows["offset"].to_pylist()
        ]
        self.assertEqual(sorted(offsets), sorted(self.written.rows))
        self.assertEqual(audit(changes), [])
