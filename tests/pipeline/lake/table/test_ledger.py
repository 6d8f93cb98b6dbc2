"""What a table has of each journal."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.errors import LakeRefused
    from fleximq.pipeline.lake.table.ledger import Covered, Gap, Ledger, readLedger, writeLedger


class LedgerTests(SynchronousTestCase):
    """Batch by batch."""

    def test_eachBatchAddsItsOffsetsRowsAndGaps(self) -> None:
        ledger = Ledger().withBatch(0, {"a": 1}, {"a": 10}, {"a": 9}, {})
        ledger = ledger.withBatch(1, {"a": 10, "b": 5}, {"a": 30, "b": 6}, {"b": 1}, {"a": [Gap(12, 14, "x", True)]})
        self.assertEqual(ledger.batch, 1)
        self.assertEqual(ledger.journals, {"a": Covered(1, 30, 9, (Gap(12, 14, "x", True),)), "b": Covered(5, 6, 1)})

    def test_ledgerKnowsWhetherABatchIsIn(self) -> None:
        ledger = Ledger().withBatch(0, {"a": 1}, {"a": 10}, {}, {})
        self.assertTrue(ledger.covers({"a": 10}))
        self.assertFalse(ledger.covers({"a": 11}))
        self.assertFalse(ledger.covers({"a": 10, "b": 1}))
        self.assertFalse(Ledger().covers({}))

    def test_touchingGapsOfOneReasonAreOne(self) -> None:
        found = [Gap(5, 9, "x", True), Gap(1, 5, "x", True), Gap(9, 10, "y", True), Gap(20, 21, "y", True)]
        ledger = Ledger().withBatch(0, {"a": 1}, {"a": 30}, {}, {"a": found})
        self.assertEqual(
            ledger.journals["a"].gaps, (Gap(1, 9, "x", True), Gap(9, 10, "y", True), Gap(20, 21, "y", True))
        )

    def test_expiredRowsAreCounted(self) -> None:
        ledger = Ledger().withBatch(0, {"a": 1}, {"a": 10}, {"a": 9}, {}).withExpired({"a": 4})
        self.assertEqual(ledger.journals["a"], Covered(1, 10, 5, (), 4))


class FileTests(SynchronousTestCase):
    """The file it stands in."""

    def setUp(self) -> None:
        self.table = str(Path(self.mktemp()).absolute())
        (Path(self.table) / "_fleximq").mkdir(parents=True)

    def test_writtenLedgerIsReadBack(self) -> None:
        ledger = Ledger().withBatch(4, {"a": 1}, {"a": 10}, {"a": 9}, {"a": [Gap(1, 3, "x", False)]})
        writeLedger(self.table, ledger)
        self.assertEqual(readLedger(self.table), ledger)

    def test_formerLedgerHasNoDeadLettersAndNoChanges(self) -> None:
        covered = '{"first": 1, "next": 3, "rows": 2, "gaps": [], "expired": 0}'
        found = f'{{"version": 1, "batch": 0, "start": {{}}, "end": {{}}, "journals": {{"a": {covered}}}}}'
        (Path(self.table) / "_fleximq" / "ledger").write_text(found)
        self.assertEqual(readLedger(self.table), Ledger(0, journals={"a": Covered(1, 3, 2)}))

    def test_tableWithoutALedgerHasNothing(self) -> None:
        self.assertEqual(readLedger(self.table), Ledger())

    def test_damagedOrLaterLedgerIsRefused(self) -> None:
        path = Path(self.table) / "_fleximq" / "ledger"
        for content, words in (
            ("", "is damaged"),
            ("[]", "is damaged"),
            ('{"version": 1}', "is damaged"),
            ('{"version": 1, "batch": 0, "start": {}, "end": {}, "journals": []}', "is damaged"),
            ('{"version": 3}', "is of version 3, and this FlexiMQ knows 2"),
        ):
            path.write_text(content)
            error = self.assertRaises(LakeRefused, readLedger, self.table)
            self.assertIn(words, str(error))
