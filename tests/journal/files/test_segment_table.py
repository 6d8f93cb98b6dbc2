"""What is known of segments while they are written is what their frames and their indexes say afterwards."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files.frame_scan import DamagedRange, Window, framesOf
from fleximq.journal.files.segment_index import decodeIndex, encodeIndex, indexName, readIndex, scanSegment, writeIndex
from fleximq.journal.files.segment_summary import INDEX_INTERVAL, Segment, addCounts, assignOffsets, countTransaction
from fleximq.journal.files.segment_table import SegmentTable
from fleximq.journal.files.topic_counts import shifted, topicCountsOf
from fleximq.journal.format.frame import FrameError
from fleximq.values.records import StoredBatch, TopicBounds
from tests.journal.at_once import JournalAtOnce, published
from tests.journal.load import Load
from tests.journal.recorder import Recorder
from tests.journal.small import FOLDER, makeSmall
from tests.nightly import repetitions

_FIELDS = ("base", "end", "id", "first", "next", "highest", "clientIds", "removed", "counts", "lost", "staged")
_MORE = ("transactions", "checkpoints", "offsets", "times", "positions")


def facts(segment: Segment) -> dict[str, object]:
    """Return all that is known of a segment."""
    return {name: getattr(segment, name) for name in _FIELDS + _MORE}


def boundsOf(segments: SegmentTable) -> dict[str, tuple[int, ...]]:
    """Return the bounds of each topic, found by looking at all segments."""
    found: dict[str, tuple[int, ...]] = {}
    for segment in segments.all:
        for topic, (first, last, firstTime, lastTime, count, size) in segment.counts.items():
            known = found.get(topic, (first, 0, firstTime, 0, 0, 0))
            found[topic] = (known[0], last, known[2], lastTime, known[4] + count, known[5] + size)
    return found


class AgreeTests(SynchronousTestCase):
    """Three ways to know the same."""

    def test_writtenAndScanned(self) -> None:
        """What was noted frame by frame while a load ran is what a look at its files finds."""
        for seed in range(6):
            load = Load(seed, steps=60, weights=(40, 40, 15, 6, 15, 12, 0, 0, 0))
            segments = load.journal.segments
            known: dict[int, object] = {}
            for segment in segments.all:
                disk = load.disk
                window = Window(disk, disk.open(f"{FOLDER}/{segment.base:020d}.fxj"), segment.base, segment.end)
                scanned = scanSegment(window)
                self.assertEqual((scanned.damaged, scanned.unfinished), ([], None))
                found = scanned.segment
                known.update((each.position, each) for each in found.staged)
                for transaction, base, count in found.transactions:
                    self.assertIsNone(countTransaction(found, transaction, base, known, count))  # type: ignore[arg-type]
                self.assertEqual(facts(found), facts(segment))

    def test_bounds(self) -> None:
        """The bounds that each commit and each removal changes are those of all segments together."""
        for seed in range(12):
            load = Load(seed, steps=80)
            segments = load.journal.segments
            self.assertEqual(segments.bounds(), boundsOf(segments))
            self.assertEqual(segments.topics(1000, "", ""), sorted(segments.bounds()))

    def test_index(self) -> None:
        """An index says all that is known of its segment."""
        load = Load(3, steps=80, weights=(40, 40, 15, 6, 15, 12, 0, 0, 0))
        for segment in load.journal.segments.all:
            self.assertEqual(facts(decodeIndex(encodeIndex(segment))), facts(segment))

    def test_everyFlippedBit(self) -> None:
        """A damaged index is refused."""
        whole = encodeIndex(Segment(4096, 77))
        for bit in range(len(whole) * 8):
            wrong = bytearray(whole)
            wrong[bit // 8] ^= 1 << bit % 8
            with self.assertRaises(FrameError):
                decodeIndex(bytes(wrong))
        for length in range(len(whole)):
            with self.assertRaises(FrameError):
                decodeIndex(whole[:length])

    def test_files(self) -> None:
        """An index is written in place of another; one that is damaged, or another segment's, is as none."""
        disk = Recorder()
        self.assertIsNone(readIndex(disk, "/f", 4096))
        segment = Segment(4096, 77)
        writeIndex(disk, "/f", segment)
        segment.id = 78
        writeIndex(disk, "/f", segment)
        found = readIndex(disk, "/f", 4096)
        self.assertEqual(found and found.id, 78)
        disk.rename(f"/f/{indexName(4096)}", f"/f/{indexName(0)}")
        self.assertIsNone(readIndex(disk, "/f", 0))


class SparseTests(SynchronousTestCase):
    """The index of a large segment."""

    def setUp(self) -> None:
        disk = Recorder()
        disk.makeFolder("/disk")
        self.clock = 1000
        journal = JournalAtOnce(disk, now=self.now, segmentBytes=64 << 20)
        journal.open()
        journal.begin()
        for _ in range(400):
            journal.append(*published([bytes(2000)]), lambda offset, reason: None)
            journal.worker.drain()
        self.segment = journal.segments.all[0]

    def now(self) -> int:
        self.clock += 10
        return self.clock

    def test_apart(self) -> None:
        """There is an entry about every 64 KiB."""
        positions = list(self.segment.positions)
        steps = [behind - before for before, behind in zip(positions, positions[1:], strict=False)]
        self.assertGreater(len(steps), 10)
        self.assertTrue(all(INDEX_INTERVAL <= step < INDEX_INTERVAL + 3000 for step in steps))

    def test_before(self) -> None:
        """Each offset and position is at or behind the entry that is found for it, and before the next one."""
        segment = self.segment
        for place, position in enumerate(segment.positions):
            self.assertEqual(segment.before(segment.offsets[place]), position)
            self.assertEqual(segment.beforePosition(position), position)
            self.assertEqual(segment.beforePosition(position + 1), position)
            self.assertLess(segment.beforeTime(segment.times[place] + 1), segment.end)
            if place:
                self.assertEqual(segment.before(segment.offsets[place] - 1), segment.positions[place - 1])
                self.assertEqual(segment.beforeTime(segment.times[place]), segment.positions[place - 1])
                self.assertEqual(segment.behind(segment.positions[place - 1]), position)
        self.assertEqual(segment.behind(segment.positions[-1]), segment.end)

    def test_anEmptyOne(self) -> None:
        """A segment without an index is looked through from its beginning."""
        segment = Segment(800, 1)
        found = segment.before(5), segment.beforeTime(5), segment.beforePosition(900), segment.behind(0)
        self.assertEqual(found, (800, 800, 800, 800))


class SegmentsTests(SynchronousTestCase):
    """All of them together."""

    def setUp(self) -> None:
        journal = JournalAtOnce(Recorder(makeSmall().state))
        self.segments: SegmentTable = journal.open().segments

    def test_ofOffset(self) -> None:
        """The segment that has an offset is found, and the first one for those before all."""
        for place, segment in enumerate(self.segments.all):
            if segment.next > segment.first:
                self.assertEqual(self.segments.ofOffset(segment.next - 1), place)
        self.assertEqual(self.segments.ofOffset(0), 0)
        self.assertEqual(self.segments.ofOffset(1 << 60), len(self.segments) - 1)

    def test_ofPosition(self) -> None:
        """So is the one that has a position."""
        for place, segment in enumerate(self.segments.all):
            self.assertEqual(self.segments.ofPosition(segment.base), place)
            self.assertEqual(self.segments.ofPosition(segment.end - 1), place)

    def test_remove(self) -> None:
        """Without a segment there are fewer bytes and records, and other bounds."""
        segment = self.segments.all[0]
        before = self.segments.bounds()["a"]
        bytes, records = self.segments.bytes, self.segments.records
        self.segments.remove(segment.base)
        self.assertEqual(self.segments.bytes, bytes - segment.bytes)
        self.assertEqual(self.segments.records, records - segment.records)
        after = self.segments.bounds()["a"]
        self.assertEqual(after.count, before.count - segment.counts["a"][4])
        self.assertGreater(after.first, before.first)
        self.assertEqual(after.last, before.last)

    def test_boundsFollow(self) -> None:
        """A commit changes the bounds of its own topics, in the same mapping."""
        journal = JournalAtOnce(Recorder(makeSmall().state))
        segments = journal.open().segments
        journal.begin()
        held = dict(segments.bounds())
        self.assertEqual(segments.topics(1000, "", ""), sorted(held))
        journal.append(*published([b"x"], "new"), lambda offset, reason: None)
        journal.worker.drain()
        after = segments.bounds()
        self.assertEqual(after["new"].count, 1)
        self.assertEqual(segments.topics(1000, "", ""), sorted((*held, "new")))
        self.assertEqual({name: kept for name, kept in after.items() if name != "new"}, held)


class PlacedTests(SynchronousTestCase):
    """The parts of a transaction, some of which are lost."""

    @settings(max_examples=repetitions(120, 1500), deadline=None)
    @given(st.lists(st.integers(1, 5), max_size=8), st.sets(st.integers(0, 7)))
    def test_placed(self, counts: list[int], unknown: set[int]) -> None:
        """Each part before the first unknown one, and behind the last one, is placed where it was."""
        base = 100
        true = [base + sum(counts[:place]) for place in range(len(counts))]
        gone = sorted(place for place in unknown if place < len(counts))
        asked = [None if place in gone else count for place, count in enumerate(counts)]
        offsets, gap = assignOffsets(asked, base, sum(counts))
        if not gone:
            self.assertEqual((offsets, gap), (true, None))
            return
        for place, offset in enumerate(true):
            known = place < gone[0] or place > gone[-1]
            self.assertEqual(offsets[place], offset if known else None)
        self.assertEqual(gap, (true[gone[0]], true[gone[-1]] + counts[gone[-1]]))

    def test_contradiction(self) -> None:
        """If the parts have more or fewer records than there should be, none is placed."""
        for count in (5, 7):
            offsets, gap = assignOffsets([2, 4], 10, count)
            self.assertEqual(gap and gap[1], 10 + count)
            self.assertNotIn(14, offsets)


class CountTests(SynchronousTestCase):
    """Counting by topic."""

    def batch(self, topics: list[str], topicOf: list[int]) -> StoredBatch:
        """Return a batch with a record for each topic named."""
        number = len(topicOf)
        payloads = [bytes(place) for place in range(number)]
        return StoredBatch(
            range(5, 5 + number), range(50, 50 + number), topics, topicOf, [(1, "p")], [0] * number,
            [1] * number, [1] * number, [b"h"] * number, payloads,
        )  # fmt: skip

    def test_one(self) -> None:
        """All records of one topic."""
        self.assertEqual(topicCountsOf(self.batch(["t"], [0, 0, 0])), {"t": TopicBounds(5, 7, 50, 52, 3, 6)})

    def test_several(self) -> None:
        """Topics that are mixed, and one that is named but has no record."""
        self.assertEqual(
            topicCountsOf(self.batch(["t", "u", "v"], [0, 1, 0])),
            {"t": TopicBounds(5, 7, 50, 52, 2, 4), "u": TopicBounds(6, 6, 51, 51, 1, 2)},
        )

    def test_none(self) -> None:
        """No records."""
        self.assertEqual(topicCountsOf(self.batch(["t"], [])), {})

    def test_added(self) -> None:
        """What comes later is added, moved to its offsets."""
        counts: dict[str, list[int]] = {}
        topicCounts = {"t": TopicBounds(0, 2, 50, 52, 3, 6)}
        addCounts(counts, topicCounts, 10)
        addCounts(counts, shifted(topicCounts, 3), 10)
        self.assertEqual(counts, {"t": [10, 15, 50, 52, 6, 12]})


class ScanTests(SynchronousTestCase):
    """Going through the frames of a segment."""

    def test_unchained(self) -> None:
        """A frame that is whole but not chained to the one before it is none: something between them is missing."""
        small = makeSmall()
        name = small.segments()[0]
        frames = small.frames(name)
        content = small.content(name)
        # The second frame is damaged, the third one whole; then nothing can be said of what it is chained to.
        disk = Recorder(small.flipped(name, (frames[1].position + 70) * 8))
        window = Window(disk, disk.open(name), 0, len(content))
        found = list(framesOf(window, None, 0, atHead=True))
        self.assertEqual([place for place, each in enumerate(found) if isinstance(each, DamagedRange)], [1])
        # The first frame may be chained to none.
        disk = Recorder(small.state)
        window = Window(disk, disk.open(name), 0, len(content))
        at = frames[1].position
        first = next(iter(framesOf(window, None, at, atHead=True)))
        self.assertEqual(first, DamagedRange(at, frames[2].position, "it is not chained to the frame before it"))
