"""Tables whose files a log names are looked after by that log."""

from importlib.util import find_spec
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    import pyarrow as pa

    from fleximq.pipeline import lake
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake import aging, expiring
    from fleximq.pipeline.lake.aging import agedOut
    from fleximq.pipeline.lake.columns import Columns, writeColumns
    from fleximq.pipeline.lake.compacting import Wanted, compact
    from fleximq.pipeline.lake.formats import setFormat
    from fleximq.pipeline.lake.publishing import Batch, Publishing
    from tests.pipeline.lake.tables import DAY, JOURNAL, TIME, rows, stage

_LATE = 1_800_000_000.0


class IcebergTests(SynchronousTestCase):
    """What PyIceberg cannot do."""

    def test_refused(self) -> None:
        """Is refused in one sentence."""
        table = str(Path(self.mktemp()).absolute())
        Publishing(table).makeFolders()
        setFormat(table, {"format": "iceberg"})
        for work in (lambda: list(compact(table, Wanted())), lambda: agedOut(table, [(None, 1.0)], _LATE)):
            error = self.assertRaises(LakeRefused, work)
            self.assertIn("is an Iceberg table, and PyIceberg neither joins files nor deletes", str(error))


class DeltaTests(SynchronousTestCase):
    """``table`` has four batches: rows 1 to 8 of a topic with a quote, and 9 to 12 of the next day."""

    if find_spec("deltalake") is None:
        skip = "deltalake is not installed: pip install fleximq[delta]"

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute())
        publishing = Publishing(self.table)
        publishing.makeFolders()
        setFormat(self.table, {"format": "delta"})
        writeColumns(self.table, Columns("raw", pa.schema([])))
        publishing.prepare()
        for number in range(4):
            time = TIME if number < 2 else TIME + DAY
            found = stage(self.table, rows(range(number * 4 + 1, number * 4 + 5), "a'b", time), batch=number)
            publishing.publish(Batch(number, {JOURNAL: number * 4 + 1}, {JOURNAL: number * 4 + 5}), found, {})

    def offsets(self) -> list[int]:
        """Return the offsets that a reader of the format finds."""
        from deltalake import DeltaTable

        found: list[int] = sorted(DeltaTable(self.table).to_pyarrow_table().column("offset").to_pylist())
        return found

    def test_compact(self) -> None:
        """Its files are joined, and its readers find the same rows."""
        self.assertEqual([each[1:] for each in compact(self.table, Wanted())], [(4, 2)])
        self.assertEqual(self.offsets(), list(range(1, 17)))
        self.assertEqual(list(compact(self.table, Wanted())), [])

    def test_expire(self) -> None:
        """Old days leave it, and stay counted; also when it was compacted before."""
        list(compact(self.table, Wanted()))
        now = 1_700_006_400 + 86_400.0
        gone = agedOut(self.table, [("a'b", 86_400.0)], now)
        self.assertEqual([each.rows for each in gone], [{JOURNAL: 8}])
        self.assertEqual(self.offsets(), list(range(9, 17)))
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 17, 8, (), 8))
        self.assertEqual(agedOut(self.table, [("a'b", 86_400.0)], now), [])

    def test_crash(self) -> None:
        """What was begun is finished once, wherever it ended."""
        real = expiring.writeLedger

        def broken(*arguments: object) -> None:
            raise OSError(5, "it ends here")

        patched = self.patch(expiring, "writeLedger", broken)
        self.assertRaises(LakeRefused, agedOut, self.table, [(None, 1.0)], _LATE)
        patched.restore()
        self.assertIs(expiring.writeLedger, real)
        aging.agedOut(self.table, [("none", 1.0)], _LATE)
        self.assertEqual(self.offsets(), [])
        self.assertEqual(lake.ranges(self.table)[JOURNAL], lake.Covered(1, 17, 0, (), 16))
