"""A journal's folder read from outside."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import JournalError
from fleximq.journal.files.segment_index import indexName
from fleximq.journal.format.control_frames import REMOVED_BYTES, encodeRemoved
from fleximq.journal.format.frame import FrameHeader, FrameKind, readHeader
from tests.pipeline.installed import missing as skip
from tests.pipeline.slices_case import COLUMNS, AnySlices, SlicesCase
from tests.pipeline.written import TIME, Written

if not skip:
    from fleximq.journal.format.frame import seal
    from fleximq.pipeline.files.journal_files import JournalFiles, readSlice
    from fleximq.pipeline.files.selection import SegmentRange, Selection, Slice, Topics, divided


def headersOf(path: Path) -> list[FrameHeader]:
    """Return the headers of a segment's frames."""
    content, place, found = path.read_bytes(), 0, []
    while place < len(content):
        found.append(readHeader(content, place))
        place += found[-1].length
    return found


class LayoutCase(SlicesCase):
    """Reads the folder."""

    def opened(self) -> "JournalFiles":
        """Return a new reader of the folder."""
        return JournalFiles(str(self.folder))

    def batches(self, part: Any, selection: Any) -> Iterable[Any]:
        """Return what a task reads of a slice."""
        return readSlice(part, COLUMNS, selection, self.missing.append)

    def segments(self) -> list[Path]:
        """Return the files of the segments."""
        return sorted(self.folder.glob("*.fxj"))


class WholeTests(AnySlices, LayoutCase):
    """A journal to which nothing happened."""

    def test_committedRecordsAreReadFromAnOpenAndAClosedJournal(self) -> None:
        self.fill()
        self.assertGreater(len(self.segments()), 3)
        self.assertEqual(self.all(), self.rows)
        self.written.close()
        self.assertEqual(self.all(), self.rows)
        self.assertEqual(self.missing, [])

    def test_journalIsReadWithADamagedIndexAndWithoutAny(self) -> None:
        self.fill()
        (self.folder / indexName(0)).write_bytes(b"nonsense")
        self.assertEqual(self.all(), self.rows)
        for index in self.folder.glob("*.idx"):
            index.unlink()
        self.assertEqual(self.all(), self.rows)

    def test_boundsAreTheFirstOffsetAndTheNextOne(self) -> None:
        self.assertEqual(tuple(self.opened().bounds()), (1, 1))
        self.fill(3)
        self.assertEqual(tuple(self.opened().bounds()), (1, 34))

    def test_journalWithoutSegmentsIsEmpty(self) -> None:
        self.written.close()
        for path in self.folder.iterdir():
            if path.name != "identity":
                path.unlink()
        journal = self.opened()
        self.assertEqual((tuple(journal.bounds()), journal.offsetAt(0)), ((1, 1), 1))
        self.assertEqual((journal.slices(1, 9), journal.segments()), ([], []))

    def test_idIsTheJournalsAndAFolderWithoutOneIsRefused(self) -> None:
        self.assertEqual(self.opened().id, self.written.id)
        other = self.mktemp()
        Path(other).mkdir()
        error = self.assertRaises(JournalError, JournalFiles, other)
        self.assertEqual(str(error), f"{other} is no journal: it has no file identity")

    def test_segmentsWithoutTheTopicAreNotRead(self) -> None:
        self.fill(40)
        only = self.segments()[-1].stat().st_size
        for _ in range(40):
            self.written.kept("c", b"x" * 900)
        journal = self.opened()
        end = journal.end().offset
        wanted = Topics(frozenset({"c"}))
        slices = journal.slices(0, end, wanted)
        self.assertLess(sum(part.bytes for part in slices), sum(s.bytes for s in journal.slices(0, end)) - only)
        rows = {offset: row for offset, row in self.rows.items() if row[0] == "c"}
        self.assertEqual(self.read(slices, Selection(wanted)), rows)

    def test_firstRecordOfATimeIsFoundAndOlderSegmentsAreNotRead(self) -> None:
        for number in range(50):
            self.written.time = TIME + number * 1000
            self.written.kept("a", b"x" * 1000)
        journal = self.opened()
        self.assertEqual(
            [journal.offsetAt(TIME + time) for time in (-1, 0, 1, 1000, 48_999, 49_000)], [1, 1, 2, 2, 50, 50]
        )
        self.assertEqual(journal.offsetAt(TIME + 49_001), 51)
        late = journal.slices(0, 51, since=TIME + 45_000)
        self.assertLess(sum(part.bytes for part in late), 22_000)
        self.assertEqual(list(self.read(late, Selection(since=TIME + 45_000))), [46, 47, 48, 49, 50])

    def test_slicesHaveAboutTheSameSize(self) -> None:
        written = Written(self.mktemp(), segmentBytes=1 << 20)
        for _ in range(40):
            written.kept("a", b"x" * 70_000)
        journal = JournalFiles(written.folder)
        sizes = [part.bytes for part in journal.slices(0, 41, parts=4)]
        self.assertEqual(len(sizes), 4)
        self.assertLess(max(sizes) - min(sizes), 150_000)
        self.assertEqual(len(journal.slices(0, 41, sliceBytes=1 << 20)), 3)
        self.assertEqual(sorted(self.read(journal.slices(0, 41, parts=7))), list(range(1, 41)))


class DurableEndTests(LayoutCase):
    """How far a reader goes."""

    def test_recordsBehindTheCommittedEndAreNotRead(self) -> None:
        self.fill(3)
        end = (self.folder / "end").read_bytes()
        before = self.rows
        self.fill(3)
        (self.folder / "end").write_bytes(end)
        self.assertEqual(self.all(), before)
        self.assertEqual(self.all(0, 1 << 40), before)

    def test_withoutAWholeEndFileTheEndIsTheLastWholeFrame(self) -> None:
        self.fill(3)
        self.written.close()
        content = (self.folder / "end").read_bytes()
        half = content[:8] + b"\x05" + content[9:]
        journal = self.opened()
        expected = journal.end().offset
        journal._folder._sleep = lambda seconds: None
        (self.folder / "end").write_bytes(half)
        self.assertEqual((journal.end().offset, self.all()), (expected, self.rows))
        (self.folder / "end").unlink()
        self.assertEqual((journal.end().offset, self.all()), (expected, self.rows))

    def test_withoutTheEndFileAnUnfinishedFrameIsNoPartOfTheJournal(self) -> None:
        self.fill(3)
        (self.folder / "end").unlink()
        last = self.segments()[-1]
        whole = last.read_bytes()
        cut = headersOf(last)[-1]
        last.write_bytes(whole[: -cut.length // 2])
        rows = {offset: row for offset, row in self.rows.items() if offset < cut.baseOffset}
        self.assertEqual(self.all(), rows)
        self.assertEqual(self.missing, [])

    def test_endFileThatIsBeingWrittenIsReadAgain(self) -> None:
        self.fill(1)
        path = self.folder / "end"
        content = path.read_bytes()
        path.write_bytes(content[:8] + b"\xff" + content[9:])
        journal = self.opened()
        waited: list[float] = []

        def sleep(seconds: float) -> None:
            waited.append(seconds)
            if len(waited) == 3:
                path.write_bytes(content)

        journal._folder._sleep = sleep
        self.assertEqual((journal.end().offset, len(waited)), (12, 3))


class TransactionTests(LayoutCase):
    """What was staged."""

    def test_stagedRecordsAppearWithTheirTransactionInItsOrderFromAnySegment(self) -> None:
        tokens = [self.written.stage("q", 1, part, f"sink{part}", b"1" + part.encode(), b"2") for part in "012"]
        self.written.stage("q", 2, "0", "never", b"x")
        self.fill(30)
        first = self.written.publishStaged("q", 1, *tokens)
        self.fill(2)
        staged = [
            ("sink0", b"10"), ("sink0", b"2"), ("sink1", b"11"), ("sink1", b"2"), ("sink2", b"12"), ("sink2", b"2"),
        ]  # fmt: skip
        rows = self.rows | dict(enumerate(staged, first))
        self.assertEqual(self.all(), rows)
        for start in range(first - 1, first + 7):
            for end in range(start, first + 8):
                wanted = {offset: row for offset, row in rows.items() if start <= offset < end}
                self.assertEqual(self.all(start, end), wanted)
        self.assertEqual(self.missing, [])

    def test_damageOfStagedRecordsLosesTheirOffsetsOnly(self) -> None:
        tokens = [self.written.stage("q", 1, part, "sink", b"payload %s" % part.encode()) for part in "012"]
        first = self.written.publishStaged("q", 1, *tokens)
        path = self.segments()[0]
        content = bytearray(path.read_bytes())
        content[content.index(b"payload 1")] ^= 1
        path.write_bytes(content)
        self.assertEqual(sorted(self.all()), [first, first + 2])
        self.assertEqual([(each.first, each.next, each.lost) for each in self.missing], [(first + 1, first + 2, True)])


class DamagedTests(LayoutCase):
    """What cannot be read is said, with its offsets."""

    def setUp(self) -> None:
        super().setUp()
        self.fill(40)
        self.victim = next(
            (path, header)
            for path in self.segments()[1:]
            for header in headersOf(path)[3:]
            if header.kind == FrameKind.RECORDS and header.count == 10
        )

    def flip(self, place: int) -> None:
        """Flip a bit of the frame that is the victim."""
        path, header = self.victim
        content = bytearray(path.read_bytes())
        content[header.position - int(path.name[:20]) + place] ^= 1
        path.write_bytes(content)

    def test_anyFlippedBitLosesTheRecordsOfItsFrameOnly(self) -> None:
        """Wherever the bit is, the frame's records are missing, all others are there, and the reader says so."""
        _, header = self.victim
        gone = range(header.baseOffset, header.baseOffset + header.count)
        rows = {offset: row for offset, row in self.rows.items() if offset not in gone}
        for place in (0, 5, 9, 17, 22, 26, 34, 44, 70, 200, header.length - 1):
            for index in ("with", "without"):
                if index == "without":
                    for path in self.folder.glob("*.idx"):
                        path.rename(path.with_suffix(".off"))
                self.flip(place)
                self.missing.clear()
                for parts in (1, 5):
                    self.assertEqual(self.all(parts=parts), rows, place)
                self.assertEqual(set(self.lost), {(gone.start, gone.stop)}, place)
                self.flip(place)
                for path in self.folder.glob("*.off"):
                    path.rename(path.with_suffix(".idx"))

    def test_damageOutsideOfTheRangeIsNotReported(self) -> None:
        self.flip(70)
        _, header = self.victim
        self.all(header.baseOffset + header.count)
        self.all(0, header.baseOffset)
        self.assertEqual(self.missing, [])
        self.all(header.baseOffset + 9)
        self.assertEqual(self.lost, [(header.baseOffset + 9, header.baseOffset + 10)])

    def test_shorterSegmentHasLostItsEnd(self) -> None:
        path, header = self.victim
        os.truncate(path, header.position - int(path.name[:20]) + 70)
        index = self.opened()._lookups.all(1 << 60)
        behind = next(sketch.next for sketch, _, _ in index if sketch.base == int(path.name[:20]))
        rows = {offset: row for offset, row in self.rows.items() if not header.baseOffset <= offset < behind}
        self.assertEqual(self.all(), rows)
        self.assertEqual(self.lost, [(header.baseOffset, behind)])


class RetentionTests(LayoutCase):
    """What is taken out of a journal."""

    def setUp(self) -> None:
        super().setUp()
        self.fill(40)

    def test_removedSegmentsBeginTheJournalLaterAndAreToldToOlderPlans(self) -> None:
        before = self.opened()
        slices = before.slices(0, before.end().offset, parts=100, sliceBytes=1)
        first = headersOf(self.segments()[2])[0].baseOffset
        for path in self.segments()[:2]:
            path.unlink()
        rows = {offset: row for offset, row in self.rows.items() if offset >= first}
        self.assertEqual(self.opened().bounds().first, first)
        self.assertEqual(self.all(), rows)
        self.assertEqual(self.missing, [])
        # Who had planned to read it all is told what went meanwhile.
        self.assertEqual(self.read(slices), rows)
        told = sorted((each.first, each.next) for each in self.missing)
        self.assertEqual((told[0][0], told[-1][1]), (1, first))

    def test_removedFramesArePassedOverEvenWhereASliceBeginsInThem(self) -> None:
        before = self.opened()
        path = self.segments()[1]
        base = int(path.name[:20])
        frames = headersOf(path)
        gone, behind = frames[2:6], frames[6]
        content = bytearray(path.read_bytes())
        count = sum(each.count for each in gone)
        removed = encodeRemoved(behind.position, gone[0].baseOffset, count, TIME, TIME)
        raw, _ = seal(removed, gone[0].segment, gone[0].position, frames[1].crc, True)
        start, end = gone[0].position - base, behind.position - base
        content[start:end] = b"".join(raw) + bytes(end - start - REMOVED_BYTES)
        path.with_suffix(".new").write_bytes(content)
        os.replace(path.with_suffix(".new"), path)
        offsets = range(gone[0].baseOffset, behind.baseOffset)
        rows = {offset: row for offset, row in self.rows.items() if offset not in offsets}
        self.assertEqual(self.all(), rows)
        self.assertEqual(
            {(each.first, each.next, each.lost) for each in self.missing}, {(offsets.start, offsets.stop, False)}
        )
        self.missing.clear()
        piece = SegmentRange(
            base,
            gone[2].position,
            behind.position + behind.length,
            gone[2].baseOffset,
            behind.baseOffset + behind.count,
        )
        limit = before.end().position
        part = Slice(str(self.folder), before.id, gone[2].baseOffset, behind.baseOffset + behind.count, limit, (piece,))
        self.assertEqual(sorted(self.read([part])), list(range(behind.baseOffset, behind.baseOffset + behind.count)))
        self.assertEqual([each.lost for each in self.missing], [False])


class AdvanceTests(LayoutCase):
    """How far a part of what waits goes."""

    def setUp(self) -> None:
        super().setUp()
        self.fill(40)
        self.reader = self.opened()
        self.end = self.reader.end().offset

    def test_recordsAreCountedToTheRecordFromAnyStart(self) -> None:
        for start in (1, 5, 11, 12, 200):
            for number in (1, 9, 10, 11, 12, 100):
                found = self.reader.advance(start, self.end, number, None)
                self.assertEqual((found.offset, found.records), (start + number, number))

    def test_advanceStopsAtTheEnd(self) -> None:
        self.assertEqual(self.reader.advance(430, self.end, 100, None)[:2], (self.end, self.end - 430))
        self.assertEqual(self.reader.advance(430, 433, 100, None)[:2], (433, 3))
        self.assertEqual(self.reader.advance(self.end, self.end, 100, None)[:2], (self.end, 0))

    def test_bytesAreCountedInWholeFramesAndAtLeastOne(self) -> None:
        one = self.reader.advance(1, self.end, None, 1)
        self.assertEqual((one.offset, one.records), (11, 10))
        more = self.reader.advance(1, self.end, None, one.bytes * 3)
        self.assertTrue(one.bytes * 2 <= more.bytes <= one.bytes * 3, more)
        self.assertEqual(self.reader.advance(1, self.end, 3, 1 << 30)[:2], (4, 3))

    def test_skippedOffsetsAreNoRecords(self) -> None:
        self.written = Written(str(self.folder), segmentBytes=20_000) if self._crash() else self.written
        before = self.end
        self.written.kept("a", b"1", b"2", b"3")
        self.assertGreater(self.written.next, 1_000_000_000)
        found = self.opened().advance(before - 1, self.written.next, 3, None)
        self.assertEqual((found.offset, found.records), (self.written.next - 1, 3))
        self.assertEqual(sorted(self.all(before - 1))[1:], sorted(self.rows))

    def _crash(self) -> bool:
        """Let the broker end without a word."""
        self.written.journal.opened.writing.release()
        return True

    def test_bytesOfATransactionAreThoseThatWereStaged(self) -> None:
        token = self.written.stage("q", 1, "0", "sink", b"x" * 15_000)
        first = self.written.publishStaged("q", 1, token)
        found = self.reader.advance(first, first + 1, None, None)
        self.assertEqual((found.offset, found.records), (first + 1, 1))
        self.assertGreater(found.bytes, 15_000)


class DividedTests(SynchronousTestCase):
    """Pieces in groups."""

    def test_eachGroupHasAboutItsShareWithoutGapsOrRepeats(self) -> None:
        pieces = [(SegmentRange(0, 0, 1000, 1, 11), [(p, 1 + p // 100) for p in range(0, 1000, 100)]),
                  (SegmentRange(1000, 1000, 1300, 11, 14), [(1000, 11), (1100, 12)])]  # fmt: skip
        for parts in range(1, 20):
            groups = divided(pieces, parts)
            self.assertLessEqual(len(groups), parts)
            spans = [(piece.position, piece.until, piece.first, piece.next) for group in groups for piece in group]
            self.assertEqual((spans[0][0], spans[-1][1], spans[0][2], spans[-1][3]), (0, 1300, 1, 14))
            for before, behind in zip(spans, spans[1:], strict=False):
                self.assertEqual(before[1::2], behind[::2])
        self.assertEqual([sum(p.until - p.position for p in group) for group in divided(pieces, 2)], [700, 600])

    def test_nothingIsDividedIntoNoGroups(self) -> None:
        self.assertEqual(divided([], 3), [])
