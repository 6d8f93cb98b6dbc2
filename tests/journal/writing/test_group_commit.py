"""Runs are collected while a commit is written, and everybody is told in order what became of theirs."""

import errno
import os
from array import array

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.journal_options import Fsync
from fleximq.errors import NotKept
from fleximq.journal.format.control_frames import decodeStateRecords
from fleximq.journal.format.frame import FrameKind
from fleximq.journal.format.record_columns import decodeRecords
from fleximq.values.state_records import QueueAcknowledged
from tests.journal.faulty_files import FaultyFiles
from tests.journal.steps import Group, published


class GroupCase(SynchronousTestCase):
    """A test with a group, ``made``, in a folder of its own."""

    def setUp(self) -> None:
        self.files = FaultyFiles()
        self.made = self.make()

    def make(self, **options: object) -> Group:
        """Return a group in a folder of its own."""
        folder = self.mktemp()
        os.mkdir(folder)
        return Group(self.files, folder, **options)  # type: ignore[arg-type]


class GroupTests(GroupCase):
    """What is written, and when it is told."""

    def test_offsets(self) -> None:
        """Each run gets the offsets behind those of the run before, and is told its first when it is on disk."""
        made = self.made
        self.assertEqual([made.append(b"abc"), made.append(b"d"), made.append(b"ef")], [1, 2, 3])
        self.assertEqual((made.told, made.group.end, made.group.decided), ([], 1, 0))
        made.steps.all()
        self.assertEqual(made.told, [(b"abc", 1, None), (b"d", 4, None), (b"ef", 5, None)])
        self.assertEqual((made.group.end, made.group.decided, made.group.appended), (7, 3, 3))

    def test_groups(self) -> None:
        """The first run is written at once; all that come meanwhile are one commit with one sync."""
        made = self.made
        for body in (b"a", b"b", b"c"):
            made.append(body)
        del self.files.calls[:]
        made.steps.step()
        self.assertEqual((made.told, self.files.calls), ([(b"a", 1, None)], ["write", "sync"]))
        made.steps.step()
        self.assertEqual(self.files.calls, ["write", "sync"] * 2)
        self.assertEqual(made.told[1:], [(b"b", 2, None), (b"c", 3, None)])
        header, frame = made.frames()[-1]
        self.assertEqual(decodeRecords(header, frame).payloads, [b"b", b"c"])

    def test_several(self) -> None:
        """A log that takes several commits gets the next one when it has as many bytes as all before it without a
        result, up to as many as the log takes; their results are told in order.
        """
        made = self.made
        made.group._commitLog.most = 3  # type: ignore[union-attr]
        handed: list[int] = []
        for number, body in enumerate((b"a" * 100, b"b" * 50, b"c" * 50, b"d" * 200, b"e" * 200, b"f" * 400)):
            made.append(body, f"topic-{number}")
            handed.append(len(made.steps.work))
        self.assertEqual(handed, [1, 1, 2, 3, 3, 3])
        made.steps.step()
        self.assertEqual(([offset for _, offset, _ in made.told], len(made.steps.work)), ([1], 3))
        made.steps.all()
        self.assertEqual([offset for _, offset, _ in made.told], [1, 101, 151, 201, 401, 601])
        self.assertEqual(made.group._underWay, 0)

    def test_nobodyIsToldBeforeTheSync(self) -> None:
        """While the sync has not returned, nobody knows of anything."""
        made = self.made
        made.append(b"a")
        seen: list[object] = []
        sync = self.files.sync

        def watched(descriptor: int) -> None:
            seen.append(list(made.told))
            sync(descriptor)

        self.patch(self.files, "sync", watched)
        made.steps.all()
        self.assertEqual((seen, len(made.told)), ([[]], 1))

    def test_busyWhileTelling(self) -> None:
        """The next commit is handed over before anybody is told of the one before."""
        made = self.made
        seen: list[int] = []
        made.group.append(*published(b"a"), lambda offset, reason: seen.append(len(made.steps.work)))
        made.append(b"b")
        made.steps.step()
        self.assertEqual(seen, [1])

    def test_failingCallback(self) -> None:
        """Whoever raises when he is told hurts nobody else."""
        made = self.made
        made.append(b"a")

        def fail(offset: int, reason: str | None) -> None:
            raise ValueError("no")

        made.group.append(*published(b"b"), fail)
        made.append(b"c")
        made.steps.all()
        self.assertEqual(made.told, [(b"a", 1, None), (b"c", 3, None)])
        self.assertEqual([str(error) for error in made.errors], ["no"])
        self.assertEqual(made.group.decided, 3)

    def test_endGoesWithTheTelling(self) -> None:
        """Who is told of a run finds the end right behind it, and his own number safe."""
        made = self.made
        seen: list[tuple[int, int]] = []
        for body in (b"ab", b"cde"):
            made.group.append(
                *published(body),
                lambda offset, reason: seen.append((made.group.end, made.group.decided)),
            )
        made.steps.all()
        self.assertEqual(seen, [(3, 1), (6, 2)])

    def test_cannotBeFound(self) -> None:
        """What is on disk and cannot be found there is not safe."""

        def fail(commit: object) -> None:
            raise ValueError("odd")

        self.patch(self.made.group, "settled", fail)
        self.made.append(b"a")
        self.made.append(b"b")
        self.made.steps.all()
        self.assertEqual(self.made.told, [(b"a", 0, "odd"), (b"b", 0, "odd")])
        self.assertRaises(NotKept, self.made.append, b"c")

    def test_noText(self) -> None:
        """A name that has no UTF-8 is refused at once, for it could not be written."""
        for run in (published(b"a", "\ud800"), published(b"a", "a", "\ud800")):
            self.assertRaises(NotKept, self.made.group.append, *run, lambda *told: None)
        self.made.append(b"b", "caf\u00e9")
        self.made.steps.all()
        self.assertEqual(self.made.told, [(b"b", 1, None)])


class WhenSafeTests(GroupCase):
    """Calls that wait come in order with what they wait for."""

    def wait(self, name: str, number: int | None = None) -> None:
        """Let a name be told when a run, or all, is safe."""
        self.made.group.whenCommitted(lambda: self.made.told.append(name), number)

    def test_nothing(self) -> None:
        """At once where nothing is pending."""
        self.wait("now")
        self.wait("zero", 0)
        self.assertEqual(self.made.told, ["now", "zero"])

    def test_ofOneRun(self) -> None:
        """A call waits for its own run, not for those of later commits."""
        made = self.made
        first = made.append(b"a")
        second = made.append(b"b")
        self.wait("second", second)
        self.wait("first", first)
        made.steps.step()
        self.assertEqual(made.told, [(b"a", 1, None), "first"])
        self.wait("again", first)
        made.steps.step()
        self.assertEqual(made.told[2:], ["again", (b"b", 2, None), "second"])

    def test_ofAll(self) -> None:
        """Without a number it waits for all that was appended before, and for nothing after."""
        made = self.made
        made.append(b"a")
        self.wait("one")
        made.append(b"b")
        self.wait("two")
        made.append(b"c")
        made.steps.all()
        self.assertEqual(made.told, [(b"a", 1, None), "one", (b"b", 2, None), "two", (b"c", 3, None)])

    def test_askedWhileTelling(self) -> None:
        """Who asks while others are told comes behind all whom he asked about."""
        made = self.made
        made.append(b"x")

        def told(offset: int, reason: str | None) -> None:
            made.told.append("first")
            self.wait("all")
            self.wait("second", 3)
            self.wait("first again", 2)

        made.group.append(*published(b"a"), told)
        made.append(b"b")
        made.steps.all()
        self.assertEqual(made.told[1:], ["first", "first again", (b"b", 3, None), "all", "second"])

    def test_behindNotes(self) -> None:
        """Notes are waited for too, and then do not wait themselves."""
        made = self.made
        made.group.appendState(QueueAcknowledged("q:a", array("Q", [1])))
        self.wait("noted")
        self.assertEqual(made.told, [])
        made.steps.all()
        self.assertEqual(made.told, ["noted"])

    def test_refused(self) -> None:
        """A call comes as well when its run is refused."""
        self.files.fail("sync")
        number = self.made.append(b"a")
        self.wait("after", number)
        self.made.steps.all()
        self.assertEqual(self.made.told, [(b"a", 0, "input/output error"), "after"])


class NotesTests(GroupCase):
    """Notes ride with records."""

    def appendState(self, *offsets: int) -> None:
        """Note that these were acknowledged."""
        self.made.group.appendState(QueueAcknowledged("q:a", array("Q", offsets)))

    def notes(self) -> list[object]:
        """Return the notes in the segment's last frame."""
        return list(decodeStateRecords(*self.made.frames()[-1]))

    def test_alone(self) -> None:
        """By themselves they wait a moment."""
        self.appendState(1)
        self.appendState(2)
        self.assertEqual(self.made.steps.work, [])
        self.made.steps.remindNow()
        self.made.steps.all()
        self.assertEqual(self.notes(), [QueueAcknowledged("q:a", array("Q", [1, 2]))])

    def test_withRecords(self) -> None:
        """If records come they go with them, behind them."""
        self.appendState(1)
        self.made.append(b"a")
        self.made.steps.step()
        self.assertEqual([header.kind for header, _ in self.made.frames()[-2:]], [FrameKind.RECORDS, FrameKind.NOTES])
        self.made.steps.remindNow()
        self.assertEqual(self.made.steps.work, [])

    def test_behindCommit(self) -> None:
        """Those that come while a commit is written wait a moment behind it."""
        self.made.append(b"a")
        self.appendState(1)
        self.made.steps.all()
        self.assertEqual(len(self.made.settled), 1)
        self.made.steps.remindNow()
        self.made.steps.all()
        self.assertEqual(len(self.made.settled), 2)

    def test_behindCommitOfOthers(self) -> None:
        """Those that come after a commit took the first ones wait as long as these would have."""
        self.appendState(1)
        self.made.append(b"a")
        self.made.steps.all()
        self.appendState(2)
        self.made.steps.remindNow()
        self.assertEqual(self.made.steps.work, [])
        self.made.steps.remindNow()
        self.made.steps.all()
        self.assertEqual(self.notes(), [QueueAcknowledged("q:a", array("Q", [2]))])


class CrowdedTests(GroupCase):
    """What waits for the disk is counted."""

    def setUp(self) -> None:
        super().setUp()
        self.made = self.make(overloadedAt=100)

    def test_mark(self) -> None:
        """Over the mark it is crowded until enough was written; then who waits is called."""
        made = self.made
        room: list[bool] = []
        made.append(b"a")
        made.append(b"bc")
        self.assertEqual(made.group.overloaded, False)
        made.group.whenRelieved(lambda: room.append(made.group.overloaded))
        made.append(b"d")
        self.assertEqual((made.group.overloaded, room), (True, [False]))
        made.group.whenRelieved(lambda: room.append(made.group.overloaded))
        made.steps.step()
        self.assertEqual((made.group.overloaded, room), (False, [False, False]))
        made.steps.step()
        self.assertEqual(made.group.waiting, 0)

    def test_crowdedAgain(self) -> None:
        """Who fills it again lets those behind him wait on."""
        made = self.made
        made.append(b"a" * 5)
        called: list[str] = []

        def fillAgain() -> None:
            called.append("one")
            made.append(b"b" * 5)

        made.group.whenRelieved(fillAgain)
        made.group.whenRelieved(lambda: called.append("two"))
        made.steps.step()
        self.assertEqual(called, ["one"])
        made.steps.step()
        self.assertEqual(called, ["one", "two"])

    def test_fault(self) -> None:
        """After a fault nothing waits any more."""
        made = self.made
        made.append(b"a" * 5)
        called: list[str] = []
        made.group.whenRelieved(lambda: called.append("one"))
        self.files.fail("write")
        made.steps.step()
        self.assertEqual((called, made.group.overloaded, made.group.waiting), (["one"], False, 0))


class FaultTests(GroupCase):
    """After the first fault nothing is said to be safe."""

    def test_everyOperation(self) -> None:
        """Whatever fails, the commit and all behind it are refused, and there is no second attempt."""
        for operation in ("write", "sync"):
            self.files.heal()
            made = self.make()
            made.append(b"a")
            made.append(b"b")
            self.files.fail(operation)
            del self.files.calls[:]
            made.steps.all()
            self.assertEqual(made.told, [(b"a", 0, "input/output error"), (b"b", 0, "input/output error")])
            self.assertEqual(self.files.calls.count("sync"), operation == "sync")
            self.files.heal()
            error = self.assertRaises(NotKept, made.append, b"cd")
            self.assertEqual((error.refused, error.reason), (range(2), "input/output error"))
            self.assertEqual((made.group.decided, made.group.end, len(made.failed)), (2, 1, 1))

    def test_fullDisk(self) -> None:
        """A disk that takes part of a commit: refused, and what was taken is cut off again."""
        made = self.made
        made.append(b"a")
        made.steps.all()
        whole = made.frames()
        for room in (1, 63, 64, 100):
            made = self.make()
            made.append(b"a")
            made.steps.all()
            made.append(b"b")
            self.files.takeOnly(room)
            made.steps.all()
            self.files.heal()
            self.assertEqual(made.told[1:], [(b"b", 0, os.strerror(errno.ENOSPC).lower())])
            self.assertEqual(len(made.frames()), len(whole))

    def test_roll(self) -> None:
        """So if a new segment cannot be begun, whatever it is that fails; nothing of it is left."""
        for operation in ("create", "write", "sync", "syncFolder"):
            self.files.heal()
            made = self.make()
            made.append(b"a")
            made.steps.all()
            made.rollDue = True
            made.append(b"b")
            self.files.fail(operation)
            made.steps.all()
            self.assertEqual(made.told, [(b"a", 1, None), (b"b", 0, "input/output error")], operation)
            self.assertEqual(self.files.names(made.folder), ["00000000000000000000.fxj"], operation)

    def test_cannotBeEncoded(self) -> None:
        """What nobody foresaw is a fault like any other, and is reported."""
        made = self.made
        made.append(b"a")
        made.group._writing[0].parts.append(object())  # type: ignore[arg-type]
        made.steps.all()
        self.assertEqual(made.told[0][1], 0)
        self.assertIsInstance(made.failed[0].error, AttributeError)

    def test_inBetween(self) -> None:
        """When a sync in between fails nothing is taken, and all are told, in order, with the commit that follows."""
        made = self.make(fsync=Fsync("interval", 50))
        made.append(b"a")
        made.steps.all()
        self.files.fail("sync")
        made.seconds = 1.0
        made.append(b"b")
        made.append(b"c")
        made.group.refuse(made.log.syncDue() or "")
        self.assertRaises(NotKept, made.append, b"d")
        self.assertEqual(made.told, [(b"a", 1, None)])
        made.steps.all()
        self.assertEqual(made.told[1:], [(b"b", 0, "input/output error"), (b"c", 0, "input/output error")])
        self.assertEqual((made.group.decided, len(made.failed)), (3, 1))

    def test_inBetweenWhileIdle(self) -> None:
        """If nothing is being written, whatever waits is told at once."""
        made = self.made
        told: list[int] = []
        made.group.appendState(QueueAcknowledged("q:a", array("Q", [1])))
        made.group.refuse("no")
        made.group.whenCommitted(lambda: told.append(1))
        self.assertEqual((told, len(made.failed), made.failed[0].reason), ([1], 1, "no"))


class RollTests(GroupCase):
    """A new segment begins where the one before ends, with a snapshot of what all were told."""

    def test_begins(self) -> None:
        """Its first frames are SEGMENT and CHECKPOINT, then the records go on; the folder is synced."""
        made = self.made
        made.append(b"a")
        made.steps.all()
        made.rollDue = True
        made.append(b"b")
        del self.files.calls[:]
        made.steps.all()
        commit = made.settled[-1]
        assert commit.begun is not None
        kinds = [header.kind for header, _ in made.frames(commit.begun[0])]
        self.assertEqual(kinds, [FrameKind.SEGMENT, FrameKind.CHECKPOINT, FrameKind.RECORDS])
        self.assertEqual(self.files.calls, ["create", "write", "sync", "syncFolder"])
        self.assertEqual(commit.begun[0], made.settled[0].end)

    def test_waitsForTheTelling(self) -> None:
        """The snapshot is taken when all were told of what stands before it, also if they append themselves."""
        made = self.made

        def appendMore(offset: int, reason: str | None) -> None:
            made.append(b"b")

        made.group.append(*published(b"a"), appendMore)
        made.append(b"c")
        done = made.steps.work[0][1]

        def doneAndDue() -> None:
            made.rollDue = True
            done()

        made.steps.work[0] = (made.steps.work[0][0], doneAndDue)
        made.steps.step()
        opening = made.group._writing[0].opening
        assert opening is not None
        self.assertEqual((opening.snapshot.offset, opening.snapshot.snapshot), (2, 0))
        made.steps.all()
        self.assertEqual([body for body, _, _ in made.told], [b"c", b"b"])
