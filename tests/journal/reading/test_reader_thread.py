"""What is read back is what was committed, whoever asks for whichever part of it."""

from queue import SimpleQueue
from random import Random
from threading import current_thread
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.format.frame import FrameKind, readHeader
from fleximq.journal.reading.reader_thread import ReaderThread
from fleximq.values.records import StoredBatch
from tests.journal.at_once import JournalAtOnce, published
from tests.journal.recorder import Recorder
from tests.journal.small import FOLDER, Small, contents, makeSmall
from tests.nightly import repetitions


class Unreadable(Recorder):
    """A disk of which some bytes of one file cannot be read."""

    bad: tuple[str, int, int] = ("", 0, 0)

    def read(self, descriptor: int, size: int, position: int) -> bytes:
        """Read, unless it is what cannot be."""
        name, start, end = self.bad
        if name and self._open[descriptor] == self._names[name] and position < end and start < position + size:
            raise OSError(5, "input/output error")
        return super().read(descriptor, size, position)


class Wanting(Recorder):
    """A disk for which there are no descriptors, so many times."""

    wanting = 0

    def open(self, path: str, write: bool = False) -> int:
        """Open, or fail."""
        if self.wanting:
            self.wanting -= 1
            raise OSError(24, "Too many open files")
        return super().open(path, write)


def opened(small: Small, disk: Recorder | None = None) -> JournalAtOnce:
    """Return the small journal, open."""
    journal = JournalAtOnce(disk or Recorder(small.state))
    journal.open()
    return journal


class AnyPartTests(SynchronousTestCase):
    """Against a dictionary of all that was kept."""

    def setUp(self) -> None:
        self.small = makeSmall()
        self.records = self.small.records
        self.journal = opened(self.small)
        self.end = self.journal.segments.nextOffset

    def read(self, offset: int, topics: frozenset[str] | None, most: int) -> tuple[list[StoredBatch], int]:
        answers: list[tuple[list[StoredBatch], int]] = []
        self.journal.read(
            offset, lambda topic: topics is None or topic in topics, most, lambda *answer: answers.append(answer)
        )
        return answers[0]

    def advance(self, start: int, end: int, most: int | None) -> tuple[int, int]:
        answers: list[tuple[int, int, int]] = []
        self.journal.advance(start, end, most, None, lambda *answer: answers.append(answer))
        return answers[0][:2]

    def test_readFromEverywhere(self) -> None:
        """From each offset on all is read, in portions, and no more at the end."""
        offsets = sorted(self.records)
        for start in [1, *offsets[::7], offsets[-1], self.end]:
            for most in (1, 500, 1 << 20):
                found: list[StoredBatch] = []
                offset = start
                while offset < self.end:
                    batches, next = self.read(offset, None, most)
                    self.assertGreater(next, offset)
                    found += batches
                    offset = next
                self.assertEqual(offset, self.end)
                order = [each for batch in found for each in batch.offsets]
                self.assertEqual(order, [each for each in offsets if each >= start])
                self.assertEqual(contents(found), {each: self.records[each] for each in order})

    def test_advance(self) -> None:
        """From each offset on, so many records are counted as there are, whatever is missing between them."""
        offsets = sorted(self.records)
        for start in [1, *offsets[::5], offsets[-1], self.end]:
            for end in (offsets[len(offsets) // 2], self.end):
                inside = [offset for offset in offsets if start <= offset < end]
                for most in (1, 2, 7, 50, None):
                    offset, count = self.advance(start, end, most)
                    self.assertEqual(count, len(inside[:most]))
                    self.assertEqual([each for each in inside if each < offset], inside[:most])

    def test_readWanted(self) -> None:
        """Only the topics that are wanted come."""
        for topics in (frozenset(("a",)), frozenset(("sink1", "c")), frozenset(("nowhere",))):
            found: list[StoredBatch] = []
            offset = 1
            while offset < self.end:
                batches, offset = self.read(offset, topics, 300)
                found += batches
            expected = {offset: record for offset, record in self.records.items() if record[0] in topics}
            self.assertEqual(contents(found), expected)

    def test_portion(self) -> None:
        """A portion has about as many bytes as were asked for."""
        batches, _ = self.read(1, None, 900)
        sizes = [batch.size + 64 * len(batch) for batch in batches]
        self.assertGreaterEqual(sum(sizes), 900)
        self.assertLess(sum(sizes[:-1]), 900)

    @settings(max_examples=repetitions(60, 750), deadline=None)
    @given(st.lists(st.integers(0, 10_000), max_size=12), st.integers(1, 2000))
    def test_fetch(self, places: list[int], most: int) -> None:
        """Messages come in the order in which they are asked for, until they are enough; what is not there does not."""
        offsets = sorted(self.records)
        asked = [offsets[place % len(offsets)] if place % 5 else place for place in places]
        answers: list[Any] = []
        self.journal.fetch(asked, most, answers.append)
        expected: list[tuple[int, bytes]] = []
        size = 0
        for offset in asked:
            if offset in self.records and (size < most or not expected):
                expected.append((offset, self.records[offset][3]))
                size += len(self.records[offset][3])
        self.assertEqual([(message.offset, message.payload) for message in answers[0]], expected)

    def test_bounds(self) -> None:
        """Each topic's first and last offset, count and bytes are known, also where transactions brought them."""
        bounds = self.journal.bounds()
        self.assertEqual(set(bounds), {record[0] for record in self.records.values()})
        for topic, found in bounds.items():
            own = {offset: record for offset, record in self.records.items() if record[0] == topic}
            size = sum(len(record[2]) + len(record[3]) for record in own.values())
            self.assertEqual((found.first, found.last, found.count, found.bytes), (min(own), max(own), len(own), size))

    def test_readBytes(self) -> None:
        """Portions joined are the files joined; each is of whole frames, and one at least."""
        whole = b"".join(self.small.content(name) for name in self.small.segments())
        for most in (1, 700, 1 << 20):
            position, found = 0, b""
            while True:
                answers: list[tuple[int, bytes, int]] = []
                self.journal.readBytes(position, most, lambda *answer, answers=answers: answers.append(answer))
                start, data, end = answers[0]
                self.assertEqual((start, end), (position, len(whole)))
                if not data:
                    break
                if len(data) > most:
                    self.assertEqual(readHeader(data).length, len(data))
                found += data
                position += len(data)
            self.assertEqual(found, whole)

    def test_readBytesAsTheyAre(self) -> None:
        """What is read at once from a frame on is not copied; what is little of that is, and keeps nothing alive."""
        whole = b"".join(self.small.content(name) for name in self.small.segments())
        answers: list[tuple[int, memoryview, int]] = []
        self.journal.readBytes(0, 1 << 20, lambda *answer: answers.append(answer))
        self.journal.readBytes(0, 1, lambda *answer: answers.append(answer))
        (_, large, _), (_, small, _) = answers
        self.assertGreaterEqual(2 * len(large), memoryview(large.obj).nbytes)
        self.assertEqual(len(small), memoryview(small.obj).nbytes)
        self.assertTrue(whole.startswith(large) and large[: len(small)] == small)

    def test_readBytesBetween(self) -> None:
        """A position that is no frame's gives those from the next one on."""
        frames = [frame for name in self.small.segments() for frame in self.small.frames(name)]
        answers: list[tuple[int, bytes, int]] = []
        for frame in frames[:20]:
            self.journal.readBytes(frame.position + 1, 1, lambda *answer: answers.append(answer))
            self.assertEqual(answers.pop()[0], frame.position + frame.length)

    def test_readBytesAtTheEnd(self) -> None:
        """At the end, and behind it, there is nothing."""
        answers: list[tuple[int, bytes, int]] = []
        end = self.journal.segments.end
        for position in (end, end + 1000):
            self.journal.readBytes(position, 1000, lambda *answer: answers.append(answer))
            self.assertEqual(answers.pop(), (end, b"", end))


class TimeTests(SynchronousTestCase):
    """Looking for a time, with a clock that also goes back."""

    def test_offsetAt(self) -> None:
        """The first record of a time or later is found, by index and frame, over all segments."""
        random = Random(3)
        clock = [1_000_000]
        journal = JournalAtOnce(_folder(), now=lambda: clock[0], segmentBytes=30_000)
        journal.open()
        journal.begin()
        times: list[tuple[int, int]] = []
        for _ in range(600):
            clock[0] += random.choice((0, 1, 50, 900, -300))
            journal.append(
                *published([bytes(400)]),
                lambda offset, reason, at=clock[0]: times.append((offset, at)),  # type: ignore[misc]
            )
            if random.random() < 0.5:
                journal.worker.drain()
        journal.worker.drain()
        self.assertGreater(len(journal.segments), 5)
        answers: list[int] = []
        for time in [0, *(time + shift for _, time in times[::9] for shift in (-1, 0, 1)), clock[0] + 10**9]:
            journal.offsetAt(time, answers.append)
            expected = next((offset for offset, at in times if at >= time), journal.end)
            self.assertEqual(answers.pop(), expected, time)


class EndTests(SynchronousTestCase):
    """How far is read."""

    def test_notBehindTheEnd(self) -> None:
        """What is written but not committed is not read."""
        journal = JournalAtOnce(_folder())
        journal.open()
        journal.begin()
        journal.append(*published([b"safe"]), lambda offset, reason: None)
        journal.worker.drain()
        journal.append(*published([b"not yet"]), lambda offset, reason: None)
        work, done = journal.worker.handed.popleft()
        work()
        answers: list[Any] = []
        journal.read(1, lambda topic: True, 1 << 20, lambda *answer: answers.append(answer))
        batches, next = answers.pop()
        self.assertEqual((contents(batches).keys(), next), ({1}, 2))
        journal.fetch([1, 2], 1 << 20, answers.append)
        self.assertEqual([message.payload for message in answers.pop()], [b"safe"])
        journal.readBytes(0, 1 << 20, lambda *answer: answers.append(answer))
        position, data, end = answers.pop()
        self.assertEqual(position + len(data), end)
        self.assertNotIn(b"not yet", data)
        done()
        journal.fetch([1, 2], 1 << 20, answers.append)
        self.assertEqual([message.payload for message in answers.pop()], [b"safe", b"not yet"])

    def test_emptyPayloads(self) -> None:
        """A portion of records without header and payload has an end too."""
        journal = JournalAtOnce(_folder())
        journal.open()
        journal.begin()
        for _ in range(20):
            journal.append(*published([b""] * 10), lambda offset, reason: None)
            journal.worker.drain()
        answers: list[tuple[list[StoredBatch], int]] = []
        journal.read(1, lambda topic: True, 1000, lambda *answer: answers.append(answer))
        [(batches, next)] = answers
        self.assertEqual((sum(map(len, batches)), next), (20, 21))

    def test_empty(self) -> None:
        """An empty journal answers everything with nothing."""
        journal = JournalAtOnce(_folder())
        journal.open()
        answers: list[Any] = []
        journal.read(1, lambda topic: True, 100, lambda *answer: answers.append(answer))
        journal.fetch([1, 5], 100, answers.append)
        journal.offsetAt(0, answers.append)
        journal.readBytes(0, 100, lambda *answer: answers.append(answer))
        self.assertEqual(answers, [([], 1), [], 1, (0, b"", 0)])


class DamageTests(SynchronousTestCase):
    """Damage that comes to light when it is read."""

    def setUp(self) -> None:
        self.small = makeSmall()
        self.name = self.small.segments()[1]
        frames = self.small.frames(self.name)
        self.base = frames[0].position
        self.frame = next(frame for frame in frames if frame.kind == FrameKind.RECORDS)
        self.own = set(range(self.frame.baseOffset, self.frame.baseOffset + self.frame.count))

    def test_reportedOnce(self) -> None:
        """It is passed over and reported, once, and the index remembers it."""
        disk = Recorder(self.small.flipped(self.name, (self.frame.position - self.base + 70) * 8))
        journal = opened(self.small, disk)
        for _ in range(3):
            self.assertEqual(contents(journal.everything()).keys(), self.small.records.keys() - self.own)
        lost = LostRange(self.frame.position, self.frame.length, min(self.own), max(self.own) + 1)
        self.assertEqual(journal.lost, [lost])
        again = JournalAtOnce(Recorder(disk.now()))
        found = again.open()
        self.assertEqual(found.segments.lost, [lost])
        self.assertEqual(len(found.lost), 1)

    def test_fetchLost(self) -> None:
        """Messages that are damaged are left out, and reported, they alone."""
        journal = opened(
            self.small, Recorder(self.small.flipped(self.name, (self.frame.position - self.base + 70) * 8))
        )
        answers: list[Any] = []
        journal.fetch(sorted(self.own), 1 << 20, answers.append)
        self.assertEqual(answers, [[]])
        self.assertEqual([lost[2:] for lost in journal.lost], [(min(self.own), max(self.own) + 1)])

    def test_readBytesBehindDamage(self) -> None:
        """Bytes are given up to damage, and those asked for within it begin behind it."""
        journal = opened(
            self.small, Recorder(self.small.flipped(self.name, (self.frame.position - self.base + 70) * 8))
        )
        answers: list[tuple[int, bytes, int]] = []
        journal.readBytes(self.base, 1 << 20, lambda *answer: answers.append(answer))
        self.assertEqual(answers[0][0] + len(answers[0][1]), self.frame.position)
        journal.readBytes(self.frame.position, 1 << 20, lambda *answer: answers.append(answer))
        self.assertEqual(answers[1][0], self.frame.position + self.frame.length)

    def test_unreadable(self) -> None:
        """What the disk does not give is passed over and reported; what stands elsewhere is served."""
        disk = Unreadable(self.small.state)
        journal = opened(self.small, disk)
        place = self.frame.position - self.base
        disk.bad = self.name, place, place + 8
        known = contents(journal.everything())
        self.assertEqual({at: self.small.records[at] for at in known}, known)
        missing = self.small.records.keys() - known.keys()
        self.assertLessEqual(self.own, missing)
        reported = {at for lost in journal.lost for at in missing if lost.first <= at < lost.next}
        self.assertEqual(reported, missing)

    def test_partOfATransaction(self) -> None:
        """A staged frame that is damaged takes its own records of a transaction, not the others."""
        frames = [(name, frame) for name in self.small.segments() for frame in self.small.frames(name)]
        staged = [(name, frame) for name, frame in frames if frame.kind == FrameKind.STAGED][:3]
        for place, (name, frame) in enumerate(staged):
            base = self.small.frames(name)[0].position
            journal = opened(self.small, Recorder(self.small.flipped(name, (frame.position - base + 70) * 8)))
            missing = self.small.records.keys() - contents(journal.everything()).keys()
            self.assertEqual({self.small.records[at][0] for at in missing}, {f"sink{place}"})
            self.assertEqual(len(missing), 2)

    def test_partsOfATransaction(self) -> None:
        """Of two staged frames that are damaged both are reported, and what stands between them is read."""
        frames = [(name, frame) for name in self.small.segments() for frame in self.small.frames(name)]
        staged = [(name, frame) for name, frame in frames if frame.kind == FrameKind.STAGED][:3]
        state = self.small.state
        for name, frame in (staged[0], staged[2]):
            base = self.small.frames(name)[0].position
            state = self.small._replace(state=state).flipped(name, (frame.position - base + 70) * 8)
        journal = opened(self.small, Recorder(state))
        missing = self.small.records.keys() - contents(journal.everything()).keys()
        self.assertEqual({self.small.records[at][0] for at in missing}, {"sink0", "sink2"})
        self.assertEqual({at for lost in journal.lost for at in range(lost.first, lost.next)}, missing)


class LargeTransactionTests(SynchronousTestCase):
    """A transaction can be larger than memory, so it is read in parts."""

    def test_portions(self) -> None:
        """Who asks for little gets the records of one staged frame, wherever in the transaction that is."""
        small = makeSmall()
        journal = opened(small)
        first = min(at for at, content in small.records.items() if content[0] == "sink0")
        answers: list[tuple[list[StoredBatch], int]] = []
        for place in range(3):
            journal.read(first + 2 * place, lambda topic: True, 1, lambda *answer: answers.append(answer))
            batches, next = answers.pop()
            self.assertEqual({content[0] for content in contents(batches).values()}, {f"sink{place}"})
            self.assertEqual(next, first + 2 * place + 2)


class ThreadTests(SynchronousTestCase):
    """The thread itself."""

    def setUp(self) -> None:
        small = makeSmall()
        self.journal = opened(small)
        self.calls: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        self.reader = ReaderThread(
            self.journal.files, FOLDER, self.journal.segments, lambda *call: self.calls.put(call), log=self.log
        )
        self.said: list[str] = []
        self.reader.begin()
        self.addCleanup(self.reader.stop)

    def log(self, sentence: str) -> None:
        self.said.append(sentence)

    def answered(self) -> None:
        """Wait for a call and make it."""
        call, *arguments = self.calls.get(timeout=300)
        call(*arguments)

    def test_elsewhere(self) -> None:
        """Reading is done on another thread, the answer comes by callFromThread."""
        threads: list[str] = []
        answers: list[Any] = []

        def wanted(topic: str) -> bool:
            threads.append(current_thread().name)
            return True

        self.reader.read(1, wanted, 100, lambda *answer: answers.append(answer))
        self.answered()
        self.assertEqual(set(threads), {"journal-reader"})
        self.assertEqual(len(answers), 1)

    def test_inOrder(self) -> None:
        """Answers come in the order of the questions."""
        answers: list[Any] = []
        for number in range(5):
            self.reader.fetch([1], 1, lambda messages, number=number: answers.append(number))  # type: ignore[misc]
        for _ in range(5):
            self.answered()
        self.assertEqual(answers, [0, 1, 2, 3, 4])

    def test_unforeseen(self) -> None:
        """A job that fails is logged, and answered with the same offset again; the thread goes on."""

        def wanted(topic: str) -> bool:
            raise ValueError("unforeseen")

        answers: list[Any] = []
        self.reader.read(1, wanted, 100, lambda *answer: answers.append(answer))
        self.answered()
        self.answered()
        self.assertEqual(answers, [([], 1)])
        self.assertIn("unforeseen", self.said[0])
        self.reader.fetch([1], 1, answers.append)
        self.answered()
        self.assertEqual(len(answers[1]), 1)

    def test_passing(self) -> None:
        """For want of descriptors nothing is taken for lost: it is tried again."""
        disk = Wanting(makeSmall().state)
        journal = opened(makeSmall(), disk)
        reader = ReaderThread(disk, FOLDER, journal.segments, lambda *call: self.calls.put(call), log=self.log)
        disk.wanting = 2
        reader.begin()
        self.addCleanup(reader.stop)
        answers: list[Any] = []
        reader.fetch([1], 1, answers.append)
        self.answered()
        self.answered()
        self.assertEqual([message.offset for message in answers[0]], [1])
        self.assertEqual(self.said, ["the journal cannot be read for now: too many open files"])

    def test_stop(self) -> None:
        """What was asked before is still answered, and the files are closed."""
        answers: list[Any] = []
        self.reader.fetch([1], 1, answers.append)
        self.reader.stop()
        self.answered()
        self.assertEqual(len(answers[0]), 1)
        self.assertEqual(self.reader._walk.opened._open, {})


def _folder() -> Recorder:
    disk = Recorder()
    disk.makeFolder("/disk")
    return disk
