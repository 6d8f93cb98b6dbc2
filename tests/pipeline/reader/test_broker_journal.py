"""A broker's journal read through the broker gives what reading its folder gives."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.journal_paths import JOURNAL_PATHS
from fleximq.client.blocking import connect
from fleximq.client.errors import ConnectionLost, RequestFailed
from fleximq.errors import BrokerError
from fleximq.journal.files import record_distance
from fleximq.journal.format.control_frames import encodeRemoved
from fleximq.journal.format.frame import FrameHeader, FrameKind, readHeader, seal
from tests.pipeline.installed import missing as skip
from tests.pipeline.slices_case import COLUMNS, AnySlices, SlicesCase
from tests.pipeline.started_broker import startBroker
from tests.pipeline.written import TIME, Written

if not skip:
    from fleximq.pipeline.broker_link import BrokerAddress
    from fleximq.pipeline.errors import BrokerGone, BrokerRefused, NotJournalled
    from fleximq.pipeline.files.journal_files import JournalFiles
    from fleximq.pipeline.files.selection import Selection, Topics
    from fleximq.pipeline.reader import broker_journal
    from fleximq.pipeline.reader.broker_journal import RemoteJournal, readRemote


class NearPlace:
    """A place whose broker is a journal in this process.

    Frames at positions in ``hidden`` are not given, as those are not that were damaged or removed; ``instead`` has
    other bytes for some. Every answer that is due in ``lost`` is lost on its way.
    """

    url = "tcp://broker:7890"
    timeout = 10.0
    addresses = 1

    def __init__(self, written: Written) -> None:
        self.written = written
        self.hidden: set[int] = set()
        self.instead: dict[int, bytes] = {}
        self.lost: set[int] = set()
        self.asked = 0

    def connect(self) -> NearPlace:
        """Return what answers."""
        return self

    def close(self, timeout: float) -> None:
        """Nothing is open."""

    def ask(self, path: str, arguments: dict[str, Any]) -> Any:
        """Answer as the broker does."""
        self.asked += 1
        if self.asked in self.lost:
            raise ConnectionLost("the network")
        if path == "/journal/read" and (self.hidden or self.instead):
            return self._read(**arguments)
        answers: list[Any] = []
        try:
            broker: Any = SimpleNamespace(journal=self.written.journal)
            JOURNAL_PATHS[path](broker, ConnectedClient(1000, "fleximq", "me"), arguments, answers.append)
        except BrokerError as error:
            raise RequestFailed(error.status, str(error), path) from error
        return answers[0]

    def ask_packed(self, path: str, arguments: dict[str, Any]) -> bytes:
        """Answer so, too."""
        answer: bytes = msgpack.packb(self.ask(path, arguments))
        return answer

    def headers(self) -> list[FrameHeader]:
        """Return the headers of all frames."""
        return [readHeader(frame) for _, frame in self._frames()]

    def _frames(self) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []

        def told(first: int, content: bytes | memoryview, end: int) -> None:
            found.append((first, bytes(content)))

        position = 0
        while not found or found[-1][1]:
            self.written.journal.readBytes(position, 1, told)
            position = found[-1][0] + len(found[-1][1])
        return found[:-1]

    def _read(self, position: int, most: int) -> Any:
        pieces: list[bytes] = []
        first = behind = 0
        for at, frame in self._frames():
            frame = self.instead.get(at, frame)
            if at < position or at in self.hidden:
                continue
            if pieces and (at != behind or sum(map(len, pieces)) + len(frame) > most):
                break
            first = first if pieces else at
            pieces.append(frame)
            behind = at + len(frame)
        return {"position": first, "data": b"".join(pieces), "next": behind, "end": 1 << 40, "journal": self.written.id}


class HostilePlace(NearPlace):
    """A place whose broker gives its journal the name ``called``, or answers a path with ``answers``."""

    called: object = ""
    answers: dict[str, Any] = {}

    def ask(self, path: str, arguments: dict[str, Any]) -> Any:
        """Answer as the broker does, under another name."""
        return self.answers.get(path, super().ask(path, arguments) | {"journal": self.called})


class TwoNodes(NearPlace):
    """A place with two addresses; every second connection leads to a node that has nothing yet."""

    addresses = 2
    isBehind = True

    def connect(self) -> NearPlace:
        """Reach the other node."""
        self.isBehind = not self.isBehind
        return self

    def ask(self, path: str, arguments: dict[str, Any]) -> Any:
        """Answer as the node does."""
        empty = {"data": b"", "end": 0, "position": 0} if self.isBehind else {}
        return super().ask(path, arguments) | empty


class RemoteCase(SlicesCase):
    """``near`` is the place of the journal, through which it is read."""

    def setUp(self) -> None:
        super().setUp()
        self.patch(broker_journal, "STEP", 512)
        self.near = NearPlace(self.written)

    @property
    def place(self) -> BrokerAddress:
        """The place as what it stands for."""
        return cast(BrokerAddress, self.near)

    def opened(self) -> RemoteJournal:
        """Return a new reader of the place."""
        return RemoteJournal(self.place)

    def batches(self, part: Any, selection: Any) -> Iterable[Any]:
        """Return what a task reads of a slice."""
        return readRemote(part, self.place, COLUMNS, selection, self.missing.append)

    def position(self, kind: FrameKind, number: int) -> FrameHeader:
        """Return the header of one of the frames of a kind."""
        return [header for header in self.near.headers() if header.kind == kind][number]


class WholeTests(AnySlices, RemoteCase):
    """A journal to which nothing happened."""

    def test_committedRecordsAreReadInAnyNumberOfParts(self) -> None:
        self.fill()
        for parts in (1, 2, 7, 1000):
            self.assertEqual(self.all(parts=parts), self.rows)
        self.assertEqual(self.all(sliceBytes=3000), self.rows)
        self.assertEqual(self.missing, [])

    def test_nodeThatLagsIsPassedOverInPlanningAndReading(self) -> None:
        self.near = TwoNodes(self.written)
        self.fill(12)
        journal = RemoteJournal(self.place)
        end = journal.end()
        journal.close()
        self.assertEqual(journal.end(), end)
        self.assertEqual((self.read(journal.slices(0, end.offset, parts=3)), self.missing), (self.rows, []))

    def test_idThatIsNoJournalIdIsRefused(self) -> None:
        self.near = near = HostilePlace(self.written)
        for near.called in ("../../../OUT", "A" * 32, "a" * 31, "a" * 33, "", 5, None, ["a" * 32]):
            self.assertRaisesRegex(BrokerRefused, "must be 32 hexadecimal digits", RemoteJournal, self.place)
        near.called = "a" * 32
        self.assertEqual(RemoteJournal(self.place).id, near.called)

    def test_malformedAnswerIsOneSentenceAtTheStartAndLater(self) -> None:
        self.near = near = HostilePlace(self.written)
        near.called, good = self.written.id, {"journal": self.written.id, "position": 0, "end": 0, "next": 0}
        journal = RemoteJournal(self.place)
        bounds: list[Any] = [None, [], "x", {}, good | {"position": "0"}, good | {"end": True}]
        read: list[Any] = [None, {}, good, good | {"data": "text"}, good | {"next": None}]
        for path, wrong in (("/journal/bounds", bounds), ("/journal/read", read)):
            for answer in wrong:
                near.answers = {path: answer}
                error = self.assertRaises(BrokerRefused, journal.bounds)
                self.assertIn("sent a malformed answer", str(error), (path, answer))

    def test_answerWithoutProgressIsRefused(self) -> None:
        self.fill()
        self.near = near = HostilePlace(self.written)
        near.called = self.written.id
        journal = RemoteJournal(self.place)
        [whole] = journal.slices(0, journal.end().offset)
        first = near.ask("/journal/read", {"position": 0, "most": 1})
        near.answers = {"/journal/read": first | {"next": 0}}
        self.assertRaisesRegex(BrokerRefused, "sent a malformed answer", self.read, [whole])
        ahead = {"offset": 9, "records": 8, "bytes": 100}
        wrong: Any
        for wrong in (None, [], {}, ahead | {"offset": 1}, ahead | {"records": "8"}, ahead | {"bytes": None}):
            near.answers = {"/journal/advance": wrong}
            error = self.assertRaises(BrokerRefused, journal.advance, 1, 50, 100, None)
            self.assertIn("sent a malformed answer", str(error), wrong)

    def test_sentenceAboutALongIdIsShort(self) -> None:
        self.near = near = HostilePlace(self.written)
        near.called = "x" * 1_000_000
        self.assertLess(len(str(self.assertRaises(BrokerRefused, RemoteJournal, self.place))), 200)

    def test_partsAreOfOneSizeAndSmallEnough(self) -> None:
        self.fill()
        journal = RemoteJournal(self.place)
        sizes = [part.bytes for part in journal.slices(0, journal.end().offset, parts=4)]
        self.assertEqual(len(sizes), 4)
        self.assertLess(max(sizes), 1.3 * min(sizes))

    def test_smallRangeIsReadWithLittleElse(self) -> None:
        self.fill(12)
        [part] = RemoteJournal(self.place).slices(60, 62)
        self.assertLess(part.bytes, 4000)

    def test_idBoundsAndTimesAreThoseOfTheFolder(self) -> None:
        journal = RemoteJournal(self.place)
        self.assertEqual(tuple(journal.bounds()), (1, 1))
        self.fill(20)
        files = JournalFiles(str(self.folder))
        self.assertEqual((journal.id, journal.path), (files.id, "tcp://broker:7890"))
        self.assertEqual(tuple(journal.end()), tuple(files.end()))
        self.assertEqual(journal.bounds(), files.bounds())
        for time in (0, TIME, TIME + 1, TIME + 7_000_000, TIME + 7_000_001, TIME + 19_000_000, TIME + 19_000_001):
            self.assertEqual(journal.offsetAt(time), files.offsetAt(time))

    def test_onlySelectedRecordsAreRead(self) -> None:
        self.fill(5)
        journal = RemoteJournal(self.place)
        found = self.read(journal.slices(0, 1000), Selection(Topics(frozenset({"b"}))))
        self.assertEqual(found, {offset: row for offset, row in self.rows.items() if row[0] == "b"})

    def test_findingAPlaceTakesFewAnswersAndNoneAgain(self) -> None:
        self.fill()
        journal = RemoteJournal(self.place)
        before = self.near.asked
        journal.slices(300, 310)
        first = self.near.asked - before
        self.assertLess(first, 20)
        journal.slices(300, 310)
        self.assertEqual(self.near.asked - before - first, 1)

    def test_readingAllNeedsTwoAnswersToPlan(self) -> None:
        self.fill()
        journal = RemoteJournal(self.place)
        for start, end in ((0, 1 << 40), (1, self.written.next)):
            before = self.near.asked
            slices = journal.slices(start, end)
            self.assertLessEqual(self.near.asked - before, 2)
            self.assertEqual(self.read(slices), self.rows)

    def test_lostConnectionsAreRepeatedWithoutLossOrRepeats(self) -> None:
        self.fill(20)
        [part] = RemoteJournal(self.place).slices(0, 1000)
        self.near.lost = {self.near.asked + number for number in (1, 3, 6)}
        self.assertEqual(self.read([part]), self.rows)


class AdvanceTests(RemoteCase):
    """How far a micro-batch goes."""

    def assertAsFiles(self, starts: Iterable[int]) -> None:
        """See that the broker counts as whoever looks into the folder does, whatever the limits."""
        near, files = RemoteJournal(self.place), JournalFiles(str(self.folder))
        end = near.end().offset
        for start in starts:
            for records in (None, 1, 2, 11, 90, 10_000):
                for size in (None, 1, 3_000, 40_000, 1 << 40):
                    found = near.advance(start, end, records, size)
                    expected = files.advance(start, end, records, size)
                    if size is None:
                        # Whole segments are counted with all that stands in them.
                        self.assertEqual(found[:2], expected[:2])
                    else:
                        self.assertEqual(found, expected)

    def test_advanceIsThatOfTheFolderAcrossSegmentsAndTransactions(self) -> None:
        self.fill(60)
        token = self.written.stage("q", 1, "0", "sink", *[b"x" * 5_000] * 3)
        self.fill(2)
        self.written.publishStaged("q", 1, token)
        self.fill(3)
        self.assertAsFiles(range(1, self.written.next, 61))

    def test_offsetsSkippedByACrashAreNoRecords(self) -> None:
        self.fill(10)
        before = self.written.next
        self.written.journal.opened.writing.release()
        self.written = Written(str(self.folder), segmentBytes=20_000)
        self.near.written = self.written
        self.fill(10)
        self.assertGreater(self.written.next, 1_000_000_000)
        found = RemoteJournal(self.place).advance(before - 5, self.written.next, 8, None)
        self.assertEqual((found.offset, found.records), (1_000_000_003, 8))
        self.assertAsFiles([1, before - 5, before, 1_000_000_000, 1_000_000_007])

    def test_brokerThatCountsFewFramesIsAskedAgain(self) -> None:
        self.fill(60)
        self.patch(record_distance, "_MOST_FRAMES", 3)
        self.assertAsFiles([1, 300])

    def test_bytesLimitAStepAndStepsReachTheEnd(self) -> None:
        self.fill(20)
        journal = RemoteJournal(self.place)
        end = journal.end().offset
        for size in (1, 100, 5000):
            offset, steps = 1, 0
            while offset < end:
                offset, before = journal.advance(offset, end, None, size).offset, offset
                self.assertGreater(offset, before)
                steps += 1
            self.assertEqual(offset, end)
            self.assertGreater(steps, 3)
        self.assertEqual(journal.advance(1, end, None, 1 << 40).offset, end)


class TransactionTests(RemoteCase):
    """What was staged and published."""

    def test_transactionIsReadInTheOrderOfItsTokens(self) -> None:
        self.fill(3)
        first = self.written.stage("q", 1, "0", "s", b"a", b"b")
        second = self.written.stage("q", 1, "1", "s", b"c")
        self.written.stage("q", 1, "2", "s", b"never")
        self.written.kept("a", b"between")
        offset = self.written.publishStaged("q", 1, second, first)
        self.written.kept("a", b"behind")
        expected = self.rows | {offset: ("s", b"c"), offset + 1: ("s", b"a"), offset + 2: ("s", b"b")}
        for parts in (1, 5):
            self.assertEqual(self.all(parts=parts), expected)
        journal = RemoteJournal(self.place)
        self.assertEqual(self.read(journal.slices(offset + 1, offset + 2)), {offset + 1: ("s", b"a")})
        self.assertEqual(self.missing, [])

    def test_missingStagedPartLosesItsOffsetsOnly(self) -> None:
        tokens = [self.written.stage("q", 1, str(number), "s", b"%d" % number, b"more") for number in range(3)]
        offset = self.written.publishStaged("q", 1, *tokens)
        self.near.hidden = {int(tokens[1])}
        found = self.all()
        self.assertEqual([found[offset], found[offset + 4]], [("s", b"0"), ("s", b"2")])
        self.assertEqual(self.lost, [(offset + 2, offset + 4)])


class MissingTests(RemoteCase):
    """What should be there and is not."""

    def test_framesThatAreNotSentAreMissingWhereverSlicesAreCut(self) -> None:
        self.fill(20)
        for parts in (1, 4, 30):
            slices = RemoteJournal(self.place).slices(0, 1000, parts=parts)
            for number in (0, 7, -1):
                gone = self.position(FrameKind.RECORDS, number)
                self.near.hidden = {gone.position}
                self.missing.clear()
                rows = self.rows
                for offset in range(gone.baseOffset, gone.baseOffset + gone.count):
                    del rows[offset]
                self.assertEqual(self.read(slices), rows)
                self.assertEqual(
                    [(each.first, each.next, each.lost) for each in self.missing],
                    [(gone.baseOffset, gone.baseOffset + gone.count, True)],
                )

    def test_framesGoneBeforePlanningAreMissingUnlessTheyAreBeforeTheBounds(self) -> None:
        self.fill(20)
        gone = self.position(FrameKind.RECORDS, 7)
        self.near.hidden = {gone.position}
        for parts in (1, 4, 30):
            self.missing.clear()
            self.all(parts=parts)
            self.assertEqual(self.lost, [(gone.baseOffset, gone.baseOffset + gone.count)])
        self.near.hidden = {header.position for header in self.near.headers() if header.baseOffset < 50}
        self.missing.clear()
        first = RemoteJournal(self.place).bounds().first
        self.assertTrue(50 <= first < 65)
        self.assertEqual(min(self.all()), first)

    def test_recordsRemovedByRetentionAreToldAndNoLoss(self) -> None:
        self.fill(3)
        gone = self.position(FrameKind.RECORDS, 2)
        until = gone.position + gone.length
        removed = encodeRemoved(until, gone.baseOffset, gone.count, TIME, TIME)
        self.near.instead = {gone.position: b"".join(seal(removed, gone.segment, gone.position, 0, True)[0])}
        self.assertEqual(len(self.all()), 33 - gone.count)
        self.assertEqual([(each.first, each.lost) for each in self.missing], [(gone.baseOffset, False)])

    def test_otherJournalIsNotRead(self) -> None:
        self.fill(2)
        slices = RemoteJournal(self.place).slices(0, 1000)
        [part] = [each._replace(journal="other") for each in slices]
        error = self.assertRaises(BrokerRefused, self.read, [part])
        self.assertIn(f"has the journal {self.written.id} now, not other any more", str(error))

    def test_bytesThatAreNoFrameAreRefused(self) -> None:
        self.fill(2)
        frame = self.position(FrameKind.RECORDS, 1)
        slices = RemoteJournal(self.place).slices(0, 1000)
        self.near.instead = {frame.position: b"no frame" * 20}
        self.assertIn("sent frames that cannot be read", str(self.assertRaises(BrokerRefused, self.read, slices)))


class RealBrokerTests(SynchronousTestCase):
    """With the real program."""

    def setUp(self) -> None:
        self.folder = tempfile.mkdtemp(prefix="fleximq-remote-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def test_publishedAndStagedRecordsAreRead(self) -> None:
        broker = startBroker(self, self.folder)
        place = BrokerAddress(f"tcp://127.0.0.1:{broker.port()}")
        with connect(place.url) as client:
            client.publish_many("t", range(20_000))
            client.flush()
            told = {"query": "q", "batch": 1, "part": "0", "records": [{"topic": "s", "value": "staged"}]}
            token = client.ask("/sink/stage", told)["token"]
            client.ask("/sink/commit", {"query": "q", "batch": 1, "tokens": [token]})
        journal = RemoteJournal(place)
        self.addCleanup(journal.close)
        offsets: list[int] = []
        for part in journal.slices(0, journal.end().offset, parts=3):
            for batch in readRemote(part, place, COLUMNS, Selection(), self.fail):
                offsets += batch.column("offset").to_pylist()
        self.assertEqual(offsets, list(range(1, 20_002)))

    def test_brokerWithoutAJournalSaysSoAndAnAbsentOneIsGone(self) -> None:
        broker = startBroker(self)
        place = BrokerAddress(f"tcp://127.0.0.1:{broker.port()}", timeout=300)
        error = self.assertRaises(NotJournalled, RemoteJournal, place)
        self.assertEqual(str(error), f"the broker at {place.url} has no journal; start it with --journal DIR")
        broker.stop()
        self.assertRaises(BrokerGone, RemoteJournal, replace(place, timeout=0))
