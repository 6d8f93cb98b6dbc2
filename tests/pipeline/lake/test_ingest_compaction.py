"""The compaction beside an ingest."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline import lake
    from fleximq.pipeline.lake import compaction
    from fleximq.pipeline.lake.batch_commit import BatchCommit
    from fleximq.pipeline.lake.compaction import compact, compacting
    from fleximq.pipeline.lake.live_files import dataFiles
    from fleximq.pipeline.lake.table.lock import compactorLock
    from fleximq.pipeline.lake.table.table_log import Compacted, CompactionGoal
    from tests.pipeline.jobs.fake_run import FakeRun
    from tests.pipeline.lake.tables import JOURNAL, commit, rows

    _GOAL = CompactionGoal(olderThan=-1e9)
_PATIENCE = 300.0


class IngestCompactionTests(SynchronousTestCase):
    """``table`` gets batches while it is compacted every 10 ms."""

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute() / "messages")
        BatchCommit(self.table).prepare()
        self.watched = FakeRun()

    def publish(self, number: int) -> None:
        """Publish a batch of two rows."""
        commit(self.table, number, rows([2 * number + 1, 2 * number + 2]))

    def until(self, word: str) -> None:
        """Wait until a line with this word was said."""
        limit = time.monotonic() + _PATIENCE
        while not any(word in line for line in self.watched.said):
            self.assertLess(time.monotonic(), limit, self.watched.said)
            time.sleep(0.01)

    def test_filesAreMergedWhileBatchesFollow(self) -> None:
        with compacting([self.table], 0.01, self.watched, _GOAL):
            for number in range(10):
                self.publish(number)
            self.until("files became 1")
        self.assertLess(len(list(dataFiles(self.table))), 10)
        self.assertEqual(lake.audit(self.table), [])
        self.assertEqual(lake.ranges(self.table)[JOURNAL].rows, 20)

    def test_compactionByHandEndsNothing(self) -> None:
        for number in range(2):
            self.publish(number)
        with compacting([self.table], 0.01, self.watched, _GOAL):
            with compactorLock(self.table):
                self.until("is not compacted this time")
            self.until("2 files became 1")

    def test_unforeseenErrorIsSaidAndTriedAgain(self) -> None:
        for number in range(2):
            self.publish(number)
        errors = iter([ValueError("odd")])

        def failing(*arguments: Any) -> Iterator[Compacted]:
            for error in errors:
                raise error
            return compact(*arguments)

        self.patch(compaction, "compact", failing)
        with compacting([self.table], 0.01, self.watched, _GOAL):
            self.until("is not compacted this time: ValueError: odd")
            self.until("2 files became 1")
