"""One flipped bit, at every kind of place: nothing wrong is served, nothing is dropped silently."""

from collections.abc import Iterator
from random import Random

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import JournalError
from fleximq.journal.format.frame import HEADER_BYTES, FrameKind
from tests.journal.at_once import JournalAtOnce
from tests.journal.recorder import Recorder, State
from tests.journal.small import FIELDS, FOLDER, contents, makeSmall
from tests.nightly import repetitions


class BitFlipTests(SynchronousTestCase):
    """A journal of several segments, with frames of every kind that a broker writes."""

    def setUp(self) -> None:
        """Make the journal."""
        self.small = makeSmall()
        self.segments = self.small.segments()
        self.random = Random(1)

    def missing(self, state: State, place: object) -> set[int]:
        """Open and read a journal, check that all that is missing is reported, and return what is missing."""
        disk = Recorder(state)
        journal = JournalAtOnce(disk)
        found = journal.open()
        known = contents(journal.everything())
        wrong = {offset for offset, record in known.items() if self.small.records.get(offset) != record}
        self.assertEqual(wrong, set(), place)
        missing = self.small.records.keys() - known.keys()
        reported = {
            offset
            for offset in missing
            if any(lost.first <= offset < lost.next for lost in (*found.segments.lost, *journal.lost))
        }
        cut = found.nextOffset if found.torn else max(self.small.records) + 1
        silent = {offset for offset in missing - reported if offset < min(cut, found.lastOffset)}
        self.assertEqual(silent, set(), place)
        if missing - reported:
            self.assertNotEqual(found.torn, [], place)
        return missing

    def bits(self, name: str) -> Iterator[tuple[FrameKind, str, int]]:
        """Yield kind of frame, kind of place and number of a bit, for every kind of place in every frame of a file."""
        base = self.small.frames(name)[0].position
        for frame in self.small.frames(name):
            start = frame.position - base
            for field, (place, size) in FIELDS.items():
                yield FrameKind(frame.kind), field, (start + place) * 8 + self.random.randrange(size * 8)
            for _ in range(repetitions(2, 8)):
                bit = self.random.randrange(HEADER_BYTES * 8, frame.length * 8)
                yield FrameKind(frame.kind), "body", start * 8 + bit

    def flips(self, name: str, *without: str) -> set[FrameKind]:
        """Flip bits of one segment, and return the kinds of frames that were hit."""
        kinds = set()
        base = self.small.frames(name)[0].position
        for kind, place, bit in self.bits(name):
            state = self.small.flipped(name, bit)
            for other in without:
                del state.names[other]
            missing = self.missing(state, (name, kind, place, bit))
            hit = next(frame for frame in reversed(self.small.frames(name)) if (frame.position - base) * 8 <= bit)
            own = set(range(hit.baseOffset, hit.baseOffset + hit.count))
            if kind in (FrameKind.RECORDS, FrameKind.TRANSACTION):
                self.assertEqual(missing, own, (name, kind, place, bit))
            elif kind != FrameKind.STAGED:
                self.assertEqual(missing, set(), (name, kind, place, bit))
            kinds.add(kind)
        return kinds

    def test_segmentsWithIndex(self) -> None:
        """A flipped bit of a sealed segment takes the records of its frame, all else is served."""
        kinds = set()
        for name in (self.segments[0], self.segments[len(self.segments) // 2]):
            kinds |= self.flips(name)
        self.assertIn(FrameKind.RECORDS, kinds)
        self.assertIn(FrameKind.TRANSACTION, kinds)

    def test_segmentsWithoutIndex(self) -> None:
        """So it does where the index has to be made anew."""
        for name in (self.segments[0], self.segments[len(self.segments) // 2]):
            self.flips(name, name.replace(".fxj", ".idx"))

    def test_stagedCount(self) -> None:
        """A staged frame that counts one record too many loses its own records; the others keep their offsets."""
        name, place = self.segments[0], FIELDS["count"][0]
        base = self.small.frames(name)[0].position
        staged = [frame for frame in self.small.frames(name) if frame.kind == FrameKind.STAGED][:3]
        self.assertEqual([frame.count for frame in staged], [2, 2, 2])
        lost = [self.missing(self.small.flipped(name, (frame.position - base + place) * 8), frame) for frame in staged]
        self.assertEqual([max(each) - min(each) for each in lost], [1, 1, 1])
        self.assertEqual(len(set.union(*lost)), 6)

    def test_lastSegment(self) -> None:
        """So it does in the last segment, as long as something that was synced later stands behind it."""
        name = self.segments[-1]
        frames = self.small.frames(name)
        base, synced = frames[0].position, [frame.position for frame in frames if frame.flags]
        for kind, place, bit in self.bits(name):
            missing = self.missing(self.small.flipped(name, bit), (kind, place, bit))
            hit = next(frame for frame in reversed(frames) if (frame.position - base) * 8 <= bit)
            if hit.position < synced[-1] and kind in (FrameKind.RECORDS, FrameKind.TRANSACTION):
                own = set(range(hit.baseOffset, hit.baseOffset + hit.count))
                self.assertEqual(missing, own, (kind, place, bit))

    def test_gap(self) -> None:
        """Where numbering skipped ahead, damage does not let an offset come again."""
        kinds = [(name, frame) for name in self.segments for frame in self.small.frames(name)]
        name, gap = next((name, frame) for name, frame in kinds if frame.kind == FrameKind.GAP)
        base = self.small.frames(name)[0].position
        for bit in range((gap.position - base) * 8, (gap.position - base + gap.length) * 8, 7):
            journal = JournalAtOnce(Recorder(self.small.flipped(name, bit)))
            self.assertGreater(journal.open().nextOffset, max(self.small.records))

    def test_indexes(self) -> None:
        """An index is made anew wherever it is damaged, and nothing is missing."""
        for name in self.small.state.names:
            if name.endswith(".idx"):
                size = len(self.small.content(name))
                for place in {*range(16), *(self.random.randrange(size) for _ in range(repetitions(10, 40)))}:
                    state = self.small.flipped(name, place * 8 + self.random.randrange(8))
                    self.assertEqual(self.missing(state, (name, place)), set())

    def test_noIndexes(self) -> None:
        """Without any index all is the same."""
        indexes = [name for name in self.small.state.names if name.endswith(".idx")]
        self.assertEqual(self.missing(self.small.without(*indexes), "none"), set())

    def test_identity(self) -> None:
        """A journal whose identity is damaged is not opened: it may be anything."""
        name = f"{FOLDER}/identity"
        for bit in range(len(self.small.content(name)) * 8):
            with self.assertRaises(JournalError):
                JournalAtOnce(Recorder(self.small.flipped(name, bit))).open()

    def test_missingSegment(self) -> None:
        """A segment that is gone takes its records, and is reported; what stands before and after is served."""
        for place in range(1, len(self.segments) - 1):
            name = self.segments[place]
            first = self.small.frames(name)[0].baseOffset
            behind = self.small.frames(self.segments[place + 1])[0].baseOffset
            missing = self.missing(self.small.without(name), name)
            own = {offset for offset in self.small.records if first <= offset < behind}
            self.assertLessEqual(own, missing)

    def test_shortenedSegment(self) -> None:
        """So is one that ends too early."""
        name = self.segments[1]
        content = self.small.content(name)
        for cut in range(0, len(content), 97):
            self.missing(self.small.changed(name, content[:cut]), cut)

    def test_copies(self) -> None:
        """The damaged bytes are kept beside, and the segment itself stays as it is."""
        name = self.segments[1]
        frame = next(frame for frame in self.small.frames(name) if frame.kind == FrameKind.RECORDS)
        place = frame.position - self.small.frames(name)[0].position
        state = self.small.flipped(name, (place + 80) * 8)
        del state.names[name.replace(".fxj", ".idx")]
        disk = Recorder(state)
        JournalAtOnce(disk).open()
        after = disk.now()
        content = state.files[state.names[name]]
        kept = after.files[after.names[f"{FOLDER}/{frame.position:020d}.damaged"]]
        self.assertEqual(kept, content[place : place + frame.length])
        self.assertEqual(after.files[after.names[name]], content)
