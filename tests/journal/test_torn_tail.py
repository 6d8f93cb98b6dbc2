"""What a crash leaves of the last commit is cut off, wherever it was torn: every whole frame before it is kept."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.recovery.recovered_state import RecoveredJournal
from fleximq.journal.recovery.recovery import SKIP
from tests.journal.at_once import JournalAtOnce
from tests.journal.recorder import Recorder, State
from tests.journal.small import FOLDER, Content, contents, makeSmall


class TornTailTests(SynchronousTestCase):
    """The last three frames of a journal whose process was killed."""

    def setUp(self) -> None:
        """Make the journal."""
        self.small = makeSmall(clean=False)
        self.name = self.small.segments()[-1]
        self.content = self.small.content(self.name)
        self.last = self.small.frames(self.name)[-3:]
        self.base = self.small.frames(self.name)[0].position

    def opened(self, state: State) -> tuple[RecoveredJournal, dict[int, Content], Recorder]:
        """Open a journal, and return what was found, all records of it, and its disk."""
        disk = Recorder(state)
        journal = JournalAtOnce(disk)
        found = journal.open()
        return found, contents(journal.everything()), disk

    def whole(self, place: int) -> dict[int, Content]:
        """Return the records of all frames that end at or before a place in the last segment."""
        torn = [frame for frame in self.last if frame.position - self.base + frame.length > place]
        first = min((frame.baseOffset for frame in torn), default=SKIP * 10)
        return {offset: record for offset, record in self.small.records.items() if offset < first}

    def test_whole(self) -> None:
        """Nothing is cut off a journal that ends with a frame, although nobody closed it."""
        found, records, _ = self.opened(self.small.state)
        self.assertEqual((found.torn, found.lost, records), ([], [], self.small.records))

    def test_cutAtEveryByte(self) -> None:
        """Every whole frame is kept; what is left of another one is kept beside, and its place is told."""
        starts = [frame.position - self.base for frame in self.last]
        for cut in range(starts[0], len(self.content)):
            found, records, disk = self.opened(self.small.changed(self.name, self.content[:cut]))
            self.assertEqual(records, self.whole(cut), cut)
            self.assertEqual(found.lost, [])
            start = max(place for place in starts if place <= cut)
            if cut == start:
                self.assertEqual(found.torn, [])
                continue
            kept = f"{self.base + start:020d}.torn"
            self.assertEqual(len(found.torn), 1)
            self.assertIn(f"at position {self.base + start} ", found.torn[0])
            self.assertIn(kept, found.torn[0])
            after = disk.now()
            self.assertEqual(after.files[after.names[f"{FOLDER}/{kept}"]], self.content[start:cut])
            self.assertEqual(after.files[after.names[self.name]], self.content[:start])

    def test_zeros(self) -> None:
        """A file whose length came to the disk, but not its last bytes, is cut as one that is shorter."""
        starts = [frame.position - self.base for frame in self.last]
        for cut in range(starts[0], len(self.content) - 8, 24):
            torn = self.content[:cut].ljust(len(self.content), b"\0")
            found, records, _ = self.opened(self.small.changed(self.name, torn))
            if torn != self.content:
                self.assertEqual((records, len(found.torn), found.lost), (self.whole(cut), 1, []), cut)

    def test_holeInTheLastCommit(self) -> None:
        """If the first frame of the last commit is missing, those behind it are whole but were never safe: cut too."""
        frames = self.small.frames(self.name)
        first = max(place for place, frame in enumerate(frames) if frame.flags)
        self.assertGreater(len(frames) - first, 1)
        start, length = frames[first].position - self.base, frames[first].length
        holed = self.content[:start] + bytes(length) + self.content[start + length :]
        found, records, _ = self.opened(self.small.changed(self.name, holed))
        self.assertEqual((records, len(found.torn), found.lost), (self.whole(start), 1, []))

    def test_numberingGoesOnFurtherUp(self) -> None:
        """After a torn end no offset is given that may have been given before."""
        found, records, _ = self.opened(self.small.changed(self.name, self.content[:-1]))
        self.assertFalse(found.clean)
        self.assertEqual(found.nextOffset % SKIP, 0)
        self.assertGreater(found.nextOffset, max(self.small.records))

    def test_onlyOnce(self) -> None:
        """The next start finds nothing torn, and the same records."""
        _, records, disk = self.opened(self.small.changed(self.name, self.content[:-1]))
        found, again, _ = self.opened(disk.now())
        self.assertEqual((found.torn, again), ([], records))

    def test_nothingFinished(self) -> None:
        """A last file of which no frame is whole is put aside, and the segment before it is the last."""
        for length in (0, 1, 64, 100):
            found, records, disk = self.opened(self.small.changed(self.name, self.content[:length]))
            self.assertEqual(found.end, self.base)
            self.assertFalse(disk.exists(self.name))
            self.assertEqual(len(found.torn), int(length > 0))
            self.assertEqual(found.lost, [])
            frames = self.small.frames(self.name)
            self.assertEqual(
                records, {at: record for at, record in self.small.records.items() if at < frames[0].baseOffset}
            )
