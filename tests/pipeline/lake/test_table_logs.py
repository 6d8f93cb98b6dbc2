"""Tables whose files a log names are looked after by that log."""

import os
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip
from tests.pipeline.lake.iceberg_case import FIRST, TOPIC, IcebergCase
from tests.pipeline.lake.iceberg_case import skip as noIceberg

if not skip:
    import pyarrow as pa

    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake import expiration, live_files
    from fleximq.pipeline.lake.batch_commit import BatchCommit
    from fleximq.pipeline.lake.compaction import compact
    from fleximq.pipeline.lake.expiration import expireDays
    from fleximq.pipeline.lake.table.columns import TableColumns, writeColumns
    from fleximq.pipeline.lake.table.table_log import CompactionGoal
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, commit, crashes, rows

if not noIceberg:
    from fleximq.pipeline.lake.iceberg.iceberg_log import GRACE

AT_ONCE = CompactionGoal(olderThan=-1e9)
_LATE = 1_800_000_000.0


class IcebergTests(IcebergCase):
    """Its days leave it by snapshots, and stay counted; what becomes of small files is in test_rewriting.py."""

    if noIceberg:
        skip = noIceberg

    def expire(self) -> list[Any]:
        """Take the first day out."""
        return [each.rows for each in expireDays(self.table, [(TOPIC, 86_400.0)], 1_700_006_400 + 86_400.0)]

    def test_oldDaysLeaveAndOlderReadersFinish(self) -> None:
        list(compact(self.table, CompactionGoal(1 << 20, -1e9, 2)))
        before = self.opened()
        self.assertEqual(self.expire(), [{JOURNAL: 8}])
        self.assertEqual(self.offsets(), list(range(9, 17)))
        self.assertEqual(self.offsets(before), self.all)
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 17, 8, (), 8))
        self.assertEqual(self.expire(), [])
        self.publish()
        self.assertEqual(self.offsets(), list(range(9, 21)))

    def test_topicIsKeptByItsRule(self) -> None:
        self.assertEqual(expiration.topicsOf(self.table), {TOPIC})
        self.assertEqual(expireDays(self.table, [("other", 1.0)], _LATE), [])
        self.assertEqual(len(expireDays(self.table, [("other", 1e12), (None, 1.0)], _LATE)), 2)
        self.assertEqual(self.offsets(), [])
        self.publish()
        self.assertEqual(self.offsets(), [17, 18, 19, 20])

    def test_filesOfExpiredDaysAreDeletedAWeekLater(self) -> None:
        self.expire()
        self.assertEqual(len(self.files()), 4)
        later = time.time() + GRACE + 60
        self.assertEqual(expireDays(self.table, [("none", 1.0)], later), [])
        self.assertEqual(self.files(), self.named())
        self.assertFalse(os.path.exists(f"{self.table}/{FIRST}"))
        self.assertEqual(self.offsets(), list(range(9, 17)))
        self.publish(TIME)
        self.assertEqual(self.offsets(), list(range(9, 21)))

    def test_crashAtAnyStepCountsNothingTwice(self) -> None:
        rules, now = [(None, 86_400.0)], 1_700_006_400 + 86_400.0
        for step in crashes(lambda files: expireDays(self.table, rules, now, files), 6):
            begun = os.path.exists(f"{self.table}/_fleximq/expiry") or 1 not in self.offsets()
            self.publish()
            self.assertEqual(self.offsets(), list(range(9 if begun else 1, 21)), step)
            covered = lake.ranges(self.table)[JOURNAL]
            self.assertEqual(covered.rows, len(self.offsets()), step)
            self.assertEqual(covered.rows + covered.expired, 20, step)
            self.setUp()

    def test_crashBeforeOrAfterTheCommitIsCompletedByTheNextBatch(self) -> None:
        def ends(number: int) -> None:
            raise RuntimeError("it ends here")

        for after in (False, True):
            self.atCommits(ends, after)
            self.assertRaisesRegex(LakeRefused, "cannot be changed by Iceberg: it ends here", self.expire)
            self.patched.restore()
            self.assertEqual(self.offsets(), list(range(9 if after else 1, 17)))
            self.publish()
            self.assertEqual(self.offsets(), list(range(9, 21)))
            self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 21, 12, (), 8))
            self.setUp()

    def test_missingPyIcebergIsOneSentence(self) -> None:
        name = "fleximq.pipeline.lake.iceberg.iceberg_log"
        had = sys.modules.pop(name)
        self.addCleanup(sys.modules.update, {name: had})
        sys.modules[name] = None  # type: ignore[assignment]
        error = self.assertRaises(LakeRefused, live_files.logOf, self.table)
        self.assertIn("needs the extra iceberg: pip install '.[iceberg]'", str(error))


class DeltaTests(SynchronousTestCase):
    """``table`` has four batches: rows 1 to 8 of a topic with a quote, and 9 to 12 of the next day."""

    if find_spec("deltalake") is None:
        skip = "deltalake is not installed: pip install fleximq[delta]"

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute())
        publishing = BatchCommit(self.table)
        publishing.makeFolders()
        Path(self.table, "_fleximq", "format").write_text('{"format": "delta"}')
        writeColumns(self.table, TableColumns("raw", pa.schema([])))
        publishing.prepare()
        for number in range(4):
            time = TIME if number < 2 else TIME + DAY
            commit(self.table, number, rows(range(number * 4 + 1, number * 4 + 5), "a'b", time))

    def offsets(self) -> list[int]:
        """Return the offsets that a reader of the format finds."""
        from deltalake import DeltaTable

        found: list[int] = sorted(DeltaTable(self.table).to_pyarrow_table().column("offset").to_pylist())
        return found

    def test_filesAreJoinedAndOldDaysLeaveAndStayCounted(self) -> None:
        self.assertEqual([each[1:] for each in compact(self.table, AT_ONCE)], [(2, 1), (2, 1)])
        self.assertEqual(self.offsets(), list(range(1, 17)))
        self.assertEqual(list(compact(self.table, AT_ONCE)), [])
        now = 1_700_006_400 + 86_400.0
        gone = expireDays(self.table, [("a'b", 86_400.0)], now)
        self.assertEqual([each.rows for each in gone], [{JOURNAL: 8}])
        self.assertEqual(self.offsets(), list(range(9, 17)))
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 17, 8, (), 8))
        self.assertEqual(expireDays(self.table, [("a'b", 86_400.0)], now), [])
