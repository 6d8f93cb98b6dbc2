"""Whatever a disk does to a journal, a reader gives nothing wrong, and says which records it could not give."""

from random import Random
from struct import Struct
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.journal.recorder import Recorder, State
from tests.journal.small import FOLDER, makeSmall
from tests.pipeline.installed import missing as skip

if not skip:
    from fleximq.pipeline.files.journal_files import JournalFiles, readSlice
    from fleximq.pipeline.files.selection import Selection

#: What a broker keeps in DIR/end.
_END = Struct("<8sQQQq16xQ")
COLUMNS = ("offset", "topic", "publisher", "value")


class AnyDamageTests(SynchronousTestCase):
    """Against all that the small journal has kept; frames of each kind are in it, but those of retention."""

    def setUp(self) -> None:
        self.small = makeSmall()
        self.expected = {
            offset: (topic, publisher, payload) for offset, (topic, publisher, _, payload) in self.small.records.items()
        }
        self.end = max(self.expected) + 1
        last = self.small.segments()[-1]
        position = int(last[-24:-4]) + len(self.small.content(last))
        self.durable = _END.pack(b"FXJE0001", 2, position, self.end, 0, 2)

    def read(self, state: State, parts: int) -> tuple[dict[int, Any], list[Any]]:
        """Return what is read of a disk, and what is said to be missing."""
        state = state.copy()
        node = max(state.files) + 1
        state.names[f"{FOLDER}/end"], state.files[node] = node, self.durable
        files = Recorder(state)
        missing: list[Any] = []
        found: dict[int, Any] = {}
        for part in JournalFiles(FOLDER, files).slices(0, self.end, parts=parts, sliceBytes=1 << 30):
            for batch in readSlice(part, COLUMNS, Selection(), missing.append, files):
                batch.validate(full=True)
                for row in batch.to_pylist():
                    self.assertNotIn(row["offset"], found)
                    found[row["offset"]] = row["topic"], row["publisher"], row["value"]
        return found, missing

    def assertHonest(self, state: State, parts: int, what: object) -> int:
        """Assert that nothing wrong is read, and that what is not read is named; return how much that is."""
        found, missing = self.read(state, parts)
        self.assertEqual({offset: self.expected.get(offset) for offset in found}, found, what)
        named = {offset for each in missing for offset in self.expected if each.first <= offset < each.next}
        gone = set(self.expected) - set(found)
        self.assertEqual(gone - named, set(), what)
        return len(gone)

    def test_undamagedJournalIsReadAsAWhole(self) -> None:
        """An undamaged journal is read as a whole, and nothing is said to be missing."""
        for parts in (1, 4):
            self.assertEqual(self.read(self.small.state, parts), (self.expected, []))

    def test_anyFlippedBitLosesNoOtherRecords(self) -> None:
        """One bit in any segment."""
        random = Random(5)
        gone = 0
        for _ in range(200):
            name = random.choice(self.small.segments())
            bit = random.randrange(len(self.small.content(name)) * 8)
            gone += self.assertHonest(self.small.flipped(name, bit), random.choice((1, 4)), (name, bit))
        self.assertGreater(gone, 100)

    def test_anyFlippedBitLosesNoOtherRecordsWithoutAnIndex(self) -> None:
        random = Random(6)
        indexes = [name for name in self.small.state.names if name.endswith(".idx")]
        for _ in range(100):
            name = random.choice(self.small.segments())
            bit = random.randrange(len(self.small.content(name)) * 8)
            state = self.small.flipped(name, bit)
            for index in indexes:
                del state.names[index]
            self.assertHonest(state, random.choice((1, 4)), (name, bit))

    def test_stretchOfZerosLosesNoOtherRecords(self) -> None:
        """A stretch of zeros, as a disk leaves it that has lost a page."""
        random = Random(7)
        for _ in range(100):
            name = random.choice(self.small.segments())
            content = bytearray(self.small.content(name))
            start = random.randrange(len(content))
            size = min(random.choice((64, 512, 2000)), len(content) - start)
            content[start : start + size] = bytes(size)
            self.assertHonest(self.small.changed(name, bytes(content)), random.choice((1, 4)), (name, start, size))
