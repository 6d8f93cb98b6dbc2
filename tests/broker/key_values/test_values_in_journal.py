"""Values over restarts, on a full disk, and in the cleaning of the journal."""

import errno
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.key_values import changes
from fleximq.broker.key_values.key_values import MOST_READS, KeyValues
from fleximq.broker.key_values.value_stores import VALUES, ValuesInJournal
from fleximq.broker.replay.replay import Start
from fleximq.errors import Conflict, NoCapacity, NotKept, TooManyRequests
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import SegmentRemoval
from tests.broker.key_values.crash_simulation import explore
from tests.broker.key_values.storing import StoringCase
from tests.broker.parts import ask, askAt
from tests.broker.power_losses import Broken
from tests.broker.replay.test_feed import Reader
from tests.broker.schedules.durable import Life
from tests.nightly import repetitions

RULES = RetentionPolicy(durable=lambda topic: False)


class RestartTests(StoringCase):
    """Of a broker that was killed, after a checkpoint or without one."""

    def restart(self) -> None:
        """Kill the broker and start the next one."""
        self.life = self.life.killed()

    def checkpoint(self) -> None:
        """Write a checkpoint with the beginning of a segment."""
        self.life.journal.opened.roll()
        self.life.commit()

    def test_valuesRemain(self) -> None:
        """With revision, time and principal, whether in the checkpoint or after it; replaced ones do not return."""
        alice = self.broker.join("fleximq", principal="alice")
        kept = self.ask("put", alice, key="a", value=b"one", expires_in=50_000)["revision"]
        self.put("b", b"former")
        self.checkpoint()
        self.put("b", b"two")
        self.ask("add", key="n", number=3)
        before = self.ask("list")
        for _ in range(2):
            self.restart()
            self.assertEqual(self.ask("list"), before)
            self.assertEqual(self.values("a", "b", "n"), {"a": b"one", "b": b"two", "n": msgpack.packb(3)})
            self.put("a", b"one", if_revision=kept, expires_in=50_000)
            kept = self.ask("get", keys=["a"])["values"]["a"][0]
            before = self.ask("list")
            self.checkpoint()

    def test_deletedOnesDoNotReturn(self) -> None:
        """Nor expired ones, also if the system clock is set back after that."""
        for key in "abc":
            self.put(key, b"", **({"expires_in": 100} if key == "b" else {}))
        self.checkpoint()
        self.put("d", b"", expires_in=100)
        self.ask("delete", key="a")
        self.advance(1)
        self.advance(1)
        self.life.ahead -= 10
        self.restart()
        self.assertEqual([row["key"] for row in self.ask("list")["values"]], ["c"])

    def test_noQueueReceivesThem(self) -> None:
        """Nor scheduled messages, whatever its sources and whatever is in one commit with them."""
        definition = {"queue": "q", "sources": ["$sys/values", "$sys/schedules"]}
        ask(self.broker, self.life.me, "/queue/define", definition, lambda answer: None)
        self.life.commit()
        for key in "abc":
            self.begin("put", key=key, value=b"one")
            self.life.schedule(self.life.now() + 1000, b"later")
        self.life.commit()
        self.restart()
        [row] = askAt(self.broker, "/queue/list", {})["queues"]
        self.assertEqual((row["queue"], row["messages"]), ("q", 0))

    def test_valuesExpireAfterARestart(self) -> None:
        """At their time, and leave the memory."""
        self.put("a", b"", expires_in=5000)
        self.restart()
        self.advance(4)
        self.assertEqual(list(self.values("a")), ["a"])
        self.advance(1)
        self.assertEqual(list(self.values("a")), [])
        self.advance(1)
        self.assertEqual(len(self.broker.keyValues), 0)

    def test_limitsCountOlderValues(self) -> None:
        """Of the checkpoint, and after it."""
        self.put("a", b"")
        self.checkpoint()
        self.put("b", b"")
        self.restart()
        self.broker.keyValues.owners.mostEach = 2
        self.assertRaises(TooManyRequests, self.put, "c", b"")
        self.ask("delete", key="a")
        self.put("c", b"")

    def test_nothingIsAnsweredBeforeTheCommit(self) -> None:
        """Neither to the client that puts it nor to readers; a later change waits."""
        first, second = self.begin("put", key="a", value=b"one"), self.begin("add", key="a")
        self.assertEqual((first, second), ([], []))
        self.assertEqual(self.begin("get", keys=["a"]), [{"values": {}, "rest": []}])
        self.life.commit()
        self.assertEqual([list(answer) for answer in first], [["revision"]])


class SlowDiskTests(StoringCase):
    """A journal that is slow."""

    def test_changesThatWaitAreBounded(self) -> None:
        """By their bytes; a key that waits for nothing can be changed, and later the others again."""
        self.patch(changes, "MOST_WAITING", 5000)
        answers = [self.begin("put", key=key, value=bytes(3000)) for key in "aab"]
        self.assertRaises(NoCapacity, self.begin, "put", key="a", value=bytes(3000))
        answers += [self.begin("add", key="n") for _ in range(4)]
        self.assertRaises(NoCapacity, self.begin, "add", key="n")
        for _ in range(4):
            self.life.commit()
        self.assertTrue(all(answers))
        self.assertEqual(self.ask("add", key="n"), {"sum": 5})
        answers = [self.begin("put", key=key, value=bytes(3000)) for key in "aa"]
        self.assertRaises(NoCapacity, self.begin, "put", key="a", value=bytes(3000))

    def test_readsOfOneClientAreDivided(self) -> None:
        """A few are read at once, and those of a client that has left not at all."""
        self.put("a", b"one")
        asked: list[Callable[..., None]] = []
        self.patch(self.life.journal, "fetchRecords", lambda offsets, most, found: asked.append(found))
        answers = [self.begin("get", keys=["a"]) for _ in range(10)]
        self.begin("get", self.broker.join("fleximq"), keys=["a"])
        self.assertEqual(len(asked), MOST_READS + 1)
        for number in range(3):
            asked[number]([], 1)  # the next one is asked for
        self.assertEqual(([len(each) for each in answers], len(asked)), ([1] * 3 + [0] * 7, MOST_READS + 4))
        self.broker.leave(self.life.me, "test")
        for found in asked[3:]:
            found([], 1)
        self.assertEqual((len(asked), self.broker.keyValues._reads), (MOST_READS + 4, {}))

    def test_manyReadsThatFindNothing(self) -> None:
        """Since their value is deleted meanwhile, end one after the other."""
        self.put("a", b"one")
        asked: list[Callable[..., None]] = []
        self.patch(self.life.journal, "fetchRecords", lambda offsets, most, found: asked.append(found))
        answers = [self.begin("get", keys=["a"]) for _ in range(2000)]
        self.ask("delete", key="a")
        asked[0]([], 1)
        self.assertEqual(sum(map(len, answers)), 2000 - MOST_READS + 1)


class FullDiskTests(StoringCase):
    """A journal that stores nothing at present."""

    def test_aRefusedValueChangesNothing(self) -> None:
        """The one before remains, and the next one can be stored later."""
        self.put("a", b"one")

        def write(*arguments: Any) -> None:
            raise OSError(errno.ENOSPC, "no space left")

        self.patch(self.life.disk, "write", write)
        answers = [self.begin("put", key="a", value=b"two"), self.begin("add", key="n")]
        for _ in range(3):
            self.life.commit()
        self.assertEqual([type(answer) for [answer] in answers], [NotKept, NotKept])
        self.assertRaises(NotKept, self.put, "a", b"three")
        self.assertEqual(self.values("a", "n"), {"a": b"one"})


class DamageTests(StoringCase):
    """Records that cannot be read any more."""

    def test_aDamagedValue(self) -> None:
        """Is missing, and not asked for again; a number does not begin at 0 again until it is put."""
        self.ask("add", key="n", number=1000)
        self.put("a", b"one")
        self.life = self.life.killed()
        read = self.life.disk.read
        self.patch(self.life.disk, "read", lambda *arguments: read(*arguments).replace(b"value", b"other"))
        self.assertEqual(self.ask("get", keys=["a", "n"]), {"values": {}, "rest": []})
        self.assertRaises(Conflict, self.ask, "add", key="n")
        self.patch(self.life.disk, "read", read)
        self.put("n", b"\1")
        self.assertEqual(self.ask("add", key="n"), {"sum": 2})


class ReplayTests(StoringCase):
    """Subscriptions that start in the journal."""

    def test_valuesAndSchedulesAreNotReplayed(self) -> None:
        """Whoever may subscribe to all topics that begin with ``$``."""
        self.put("a", b"one")
        self.life.schedule(self.life.now() + 1000, b"later")
        self.life.commit()
        for pattern in ("$sys/#", "$sys.*"):
            reader = Reader()
            self.broker.follow(self.life.me, reader, pattern, Start("first"))
            self.advance(0)
            self.assertEqual(reader.offsets, [])
            reader = Reader()
            self.broker.follow(self.life.me, reader, "#", Start("first"))
            self.advance(0)
            self.assertEqual(reader.offsets, [])


class RetentionTests(SynchronousTestCase):
    """A journal of small segments whose records are needed only by values."""

    def test_onlyPresentValuesStay(self) -> None:
        """Of one key with a hundred values the last one, and those of keys that were not changed; after cleaning they
        can be read, also by the next broker.
        """
        case = StoringCase()
        case.life = Life(segmentBytes=1 << 14)
        for number in range(100):
            case.put("often", b"%03d" % number + bytes(400))
            case.put(f"key{number}", b"%03d" % number + bytes(400))
            if number % 5:
                case.ask("delete", key=f"key{number}")
        life = case.life
        life.journal.opened.roll()
        life.commit()
        size = life.journal.segments.bytes

        def exclusively(work: Callable[[], None]) -> None:
            work()
            life.journal.opened.reader.forgetNow()

        for _ in range(2):  # what is joined was rewritten before
            removal = SegmentRemoval(life.disk, "/disk/journal", life.journal.segments, RULES, exclusively)
            removal.clean(life.broker.checkpointer.needed(), frozenset(), int(life.wall() * 1_000_000))
        self.assertLess(life.journal.segments.bytes, size // 3)
        kept = [f"key{number}" for number in range(0, 100, 5)]
        mine = (each.only(VALUES.__eq__) for each in life.journal.everything())
        self.assertEqual(sum(len(each) for each in mine), len(kept) + 1)
        for _ in range(2):
            self.assertEqual(case.values("often")["often"][:3], b"099")
            self.assertEqual(sorted(case.values(*kept)), sorted(kept))
            case.life = life = life.killed()
        life.stop()


class CrashTests(SynchronousTestCase):
    """Power losses at moments of random loads."""

    def test_confirmedChangesRemain(self) -> None:
        """At whatever moment the power goes."""
        points: Counter[str] = Counter()
        for seed in range(repetitions(150, 5000)):
            explore(seed, points, repetitions(5, 12))
        self.assertGreater(min(points.values()), 50)

    def breaks(self) -> bool:
        """Return whether one of some loads breaks a promise."""
        try:
            for seed in range(30):
                explore(seed, Counter(), 12)
        except Broken:
            return True
        return False

    def test_aBrokerThatForgetsDeletions(self) -> None:
        """Is noticed."""
        self.patch(KeyValues, "unlearn", lambda values, revisions: None)
        self.assertTrue(self.breaks())

    def test_aBrokerWithoutItsCheckpoint(self) -> None:
        """Is noticed."""
        self.patch(KeyValues, "restore", lambda values, snapshot: None)
        self.assertTrue(self.breaks())

    def test_aBrokerThatAnswersBeforeTheCommit(self) -> None:
        """Is noticed."""
        write = ValuesInJournal.write

        def early(store: ValuesInJournal, client: Any, key: str, content: bytes, expires: int, stored: Any) -> None:
            end = store._journal.end
            write(store, client, key, content, expires, lambda revision, reason: None)
            stored(end, None)

        self.patch(ValuesInJournal, "write", early)
        self.assertTrue(self.breaks())
