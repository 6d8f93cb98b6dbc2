"""Retention: what has expired is taken out of the files, whatever happens meanwhile, and all else stays as it was."""

import errno
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.journal_options import RetentionRule
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_survey import Finding, FolderSurvey
from fleximq.journal.files.segment_index import indexName
from fleximq.journal.files.segment_table import segmentName
from fleximq.journal.recovery.recovery import recover
from fleximq.journal.retention.retention_rules import RetentionPolicy
from fleximq.journal.retention.segment_removal import FreedSpace, SegmentRemoval
from fleximq.values.state_records import ClientIdsReserved
from tests.journal.at_once import JournalAtOnce, published
from tests.journal.recorder import Crash, Recorder, State
from tests.nightly import nightly

FOLDER = "/disk/journal"
SECOND = 1_000_000
DAY = 24 * 3600 * SECOND
NOW = 1_790_000_000_000_000
#: The topic ``a`` is kept for ten seconds, ``b`` for ever, the rest is not durable.
RULES = RetentionPolicy(lambda topic: topic in ("a", "b"), retentions=[RetentionRule("a", 10, 0)])
Record = tuple[int, str, bytes]


def recordsOf(journal: JournalAtOnce) -> list[Record]:
    """Return all records that can be read, but those that only begin a segment: offset, topic and payload."""
    return [
        (offset, batch.topics[topic], payload)
        for batch in journal.everything()
        for offset, topic, payload in zip(batch.offsets, batch.topicOf, batch.payloads, strict=True)
        if batch.topics[topic] != "mark"
    ]


class RetentionCase(SynchronousTestCase):
    """``journal`` is open on a disk in memory, ``now`` is its clock; its segments are as long as a test wants."""

    def setUp(self) -> None:
        self.now = NOW
        self.disk = Recorder()
        self.disk.makeFolder("/disk")
        self.begin(self.disk)

    def begin(self, disk: Recorder) -> None:
        """Open the journal."""
        self.journal = JournalAtOnce(disk, FOLDER, now=lambda: self.now, segmentBytes=1 << 40)
        self.journal.open()
        self.journal.begin()

    def again(self) -> None:
        """Open the journal that the disk has now, as after the end of the process."""
        self.disk = Recorder(self.disk.now())
        self.begin(self.disk)

    def fill(self, *runs: tuple[str, int, int]) -> None:
        """Append runs, a frame each: topic, number of messages, bytes in each; then begin a new segment."""
        for topic, count, size in runs:
            body = [f"{topic}{number}".encode().ljust(size, b"-") for number in range(count)]
            self.journal.append(*published(body, topic), lambda offset, reason: self.assertIsNone(reason))
            self.journal.worker.drain()
        self.roll()

    def roll(self) -> None:
        """Begin a new segment."""
        segments = len(self.journal.segments)
        self.journal.opened._rollAt = 0
        self.journal.append(*published([b""], "mark"), lambda offset, reason: self.assertIsNone(reason))
        self.journal.worker.drain()
        self.assertEqual(len(self.journal.segments), segments + 1)

    def clean(
        self, needed: Mapping[str, int] | None = None, rules: RetentionPolicy = RULES, files: Files | None = None
    ) -> FreedSpace:
        """Take out what has expired."""
        self.said: list[str] = []
        retention = SegmentRemoval(
            files or self.disk, FOLDER, self.journal.segments, rules, self.exclusively, self.said.append
        )
        open = frozenset(staged.position for staged in self.journal.segments.staged())
        return retention.clean(needed or {}, open, self.now)

    def exclusively(self, work: Callable[[], None]) -> None:
        """Do it between two readings."""
        work()
        self.journal.opened.reader.forgetNow()

    def bases(self) -> list[int]:
        """Return where the files begin."""
        return [file.base for file in FolderSurvey(self.disk, FOLDER).files]

    def assertSound(self) -> None:
        """See that every frame is whole, and that nothing is missing that was not taken out."""
        findings = [each for each in FolderSurvey(self.disk, FOLDER).check() if isinstance(each, Finding)]
        self.assertEqual([each.sentence for each in findings if each.damaged], [])

    def assertSame(self, wanted: list[Record]) -> None:
        """See that just these records are there, now and after a new start, with and without indexes."""
        self.assertEqual(recordsOf(self.journal), wanted)
        self.assertSound()
        self.again()
        self.assertEqual(recordsOf(self.journal), wanted)
        for base in self.bases():
            if self.disk.exists(f"{FOLDER}/{indexName(base)}"):
                self.disk.remove(f"{FOLDER}/{indexName(base)}")
        self.again()
        self.assertEqual(recordsOf(self.journal), wanted)
        self.assertEqual(self.journal.health()["lost"], [])


class WholeSegmentTests(RetentionCase):
    """Segments of which nothing stays."""

    def test_removed(self) -> None:
        """Segments at the beginning go, with their indexes; what they had is no longer there to be read."""
        self.fill(("a", 5, 10))
        self.fill(("a", 5, 10))
        self.fill(("b", 2, 10))
        bases, wanted = self.bases(), recordsOf(self.journal)
        self.now += 11 * SECOND
        freed = self.clean()
        self.assertEqual((freed.removed, freed.rewritten), (2, 0))
        self.assertEqual(self.bases(), bases[2:])
        self.assertFalse(self.disk.exists(f"{FOLDER}/{indexName(bases[0])}"))
        self.assertEqual(self.journal.bounds().keys() & {"a", "b"}, {"b"})
        self.assertSame([each for each in wanted if each[0] > 12])

    def test_young(self) -> None:
        """Nothing goes before its time."""
        self.fill(("a", 5, 10))
        before = recordsOf(self.journal)
        self.now += 10 * SECOND
        self.assertEqual(self.clean(rules=RULES._replace(durable=lambda topic: True)), FreedSpace())
        self.assertSame(before)

    def test_written(self) -> None:
        """The segment that is being written is left alone."""
        self.journal.append(*published([b"x"] * 100, "x"), lambda offset, reason: None)
        self.journal.worker.drain()
        self.assertEqual(self.clean(), FreedSpace())
        self.assertEqual(len(recordsOf(self.journal)), 100)

    def test_needed(self) -> None:
        """What a queue needs keeps its segment, which is written anew if that is little."""
        self.fill(("a", 100, 100))
        self.now += 11 * SECOND
        self.assertEqual(self.clean({"a": 2}), FreedSpace())
        self.assertEqual(self.clean({"a": 99}).rewritten, 1)
        self.assertEqual([each[0] for each in recordsOf(self.journal)], [99, 100])
        self.assertEqual(self.clean({"a": 101}).removed, 1)
        self.assertSound()

    def test_middle(self) -> None:
        """Further in, a segment's file stays, with next to nothing in it; again, nothing more is done."""
        self.fill(("b", 2, 10))
        self.fill(("a", 500, 100))
        self.fill(("b", 2, 10))
        bases, wanted = self.bases(), [each for each in recordsOf(self.journal) if each[1] == "b"]
        self.now += 11 * SECOND
        freed = self.clean()
        self.assertEqual((freed.removed, freed.rewritten), (0, 1))
        self.assertGreater(freed.bytes, 50_000)
        self.assertEqual(self.bases(), bases)
        self.assertEqual(self.journal.segments.all[1].bytes, 128 + 72)
        self.assertEqual(self.clean(), FreedSpace())
        self.assertSame(wanted)

    def test_laterFirst(self) -> None:
        """A segment that was emptied goes when all before it are gone."""
        self.fill(("b", 2, 10))
        self.fill(("a", 500, 100))
        self.fill(("b", 2, 10))
        self.now += 11 * SECOND
        self.clean()
        self.assertEqual(self.clean(rules=RULES._replace(durable=lambda topic: False), needed={"b": 500}).removed, 2)
        self.assertEqual([each[1] for each in recordsOf(self.journal)], ["b", "b"])
        self.assertSound()


class PartOfSegmentTests(RetentionCase):
    """Segments of which some stays."""

    def test_mostGone(self) -> None:
        """More than half of it gone, a segment is written anew: what stays keeps offset and content."""
        self.fill(("b", 3, 100), ("a", 100, 100), ("b", 2, 100), ("a", 1, 10), ("b", 1, 10))
        before = recordsOf(self.journal)
        size = self.journal.segments.bytes
        self.now += 11 * SECOND
        freed = self.clean()
        self.assertEqual((freed.removed, freed.rewritten), (0, 1))
        self.assertEqual(self.journal.segments.bytes, size - freed.bytes)
        self.assertSame([each for each in before if each[1] == "b"])

    def test_littleGone(self) -> None:
        """Where less than half has expired, all stays."""
        self.fill(("b", 100, 100), ("a", 60, 100))
        before = recordsOf(self.journal)
        self.now += 11 * SECOND
        self.assertEqual(self.clean(), FreedSpace())
        self.assertSame(before)

    def test_smallMessages(self) -> None:
        """Messages leave a segment whose frames without messages are larger than they; afterwards it is not touched."""
        rules = RetentionPolicy(lambda topic: True, lambda topic: topic == "r", [RetentionRule("#", 10, 0)])
        self.fill(("a", 1, 1), ("r", 1, 1), ("r", 1, 1), ("a", 2, 1))
        before = recordsOf(self.journal)
        self.now += 11 * SECOND
        self.assertEqual(self.clean(rules=rules).rewritten, 1)
        self.disk.changes.clear()
        self.assertEqual((self.clean(rules=rules), self.disk.changes), (FreedSpace(), []))
        self.assertSame([each for each in before if each[0] == 3])

    def test_insideFrames(self) -> None:
        """Of a frame with several topics a part may stay."""
        for number in range(60):
            topic = "b" if number % 10 == 0 else "a"
            self.journal.append(*published([b"%02d" % number * 50], topic), lambda offset, reason: None)
        self.journal.worker.drain()
        self.roll()
        before = recordsOf(self.journal)
        self.now += 11 * SECOND
        self.assertEqual(self.clean().rewritten, 1)
        self.assertSame([each for each in before if each[1] == "b"])

    def test_repeatedly(self) -> None:
        """A segment can be written anew again and again."""
        for number in range(200):
            self.now += SECOND
            topic = "b" if number in (0, 77, 199) else "a"
            self.journal.append(*published([b"%03d" % number * 50], topic), lambda offset, reason: None)
            self.journal.worker.drain()
        self.roll()
        before = recordsOf(self.journal)
        rules = RULES._replace(retentions=[RetentionRule("a", 100, 0)])
        rewritten = 0
        for _ in range(12):
            self.now += 20 * SECOND
            rewritten += self.clean(rules=rules).rewritten
        self.assertGreater(rewritten, 2)
        self.assertSame([each for each in before if each[1] == "b"])

    def test_notes(self) -> None:
        """Notes and checkpoints of before are gone; client ids are still remembered."""
        told: list[int] = []
        self.journal.appendState(ClientIdsReserved(5000))
        self.journal.whenCommitted(lambda: told.append(1))
        self.fill(("b", 1, 10), ("a", 100, 100))
        self.now += 11 * SECOND
        self.assertEqual((self.clean().rewritten, told), (1, [1]))
        self.again()
        self.assertEqual(self.journal.opened.clientIds, 5000)

    def test_readerGoesOn(self) -> None:
        """Who reads meanwhile goes on behind what was taken out."""
        self.fill(("b", 1, 10), ("a", 100, 100), ("b", 1, 10))
        answers: list[Any] = []
        self.journal.read(1, lambda topic: True, 1, lambda batches, next: answers.append((batches, next)))
        self.journal.read(answers[0][1], lambda topic: True, 1, lambda batches, next: answers.append((batches, next)))
        self.now += 11 * SECOND
        self.clean()
        offset = answers[1][1]
        self.journal.read(offset, lambda topic: True, 1 << 20, lambda batches, next: answers.append((batches, next)))
        self.assertEqual([offset for batch in answers[2][0] for offset in batch.offsets][:1], [102])
        self.assertEqual(self.journal.health()["lost"], [])


class StagedTests(RetentionCase):
    """What was staged, and transactions."""

    def stage(self, batch: int, *payloads: bytes, topic: str = "a") -> list[str]:
        """Stage messages and return their tokens."""
        tokens: list[str] = []
        run = [published(list(payloads), topic)]
        self.journal.stage("q", batch, "0", run, lambda token, reason: tokens.append(token or ""))
        self.journal.worker.drain()
        return tokens

    def commit(self, batch: int, tokens: list[str]) -> None:
        """Commit what was staged."""
        self.journal.commitStaged("q", batch, tokens, lambda offset, reason: self.assertIsNone(reason))
        self.journal.worker.drain()

    def test_open(self) -> None:
        """What may still be committed stays; it can be, and is read then."""
        tokens = self.stage(1, b"later" * 50)
        self.fill(("a", 100, 100))
        self.now += 11 * SECOND
        self.assertEqual(self.clean().rewritten, 1)
        self.commit(1, tokens)
        self.assertIn(b"later" * 50, [payload for _, _, payload in recordsOf(self.journal)])
        self.assertSame(recordsOf(self.journal))

    def test_transaction(self) -> None:
        """While a transaction stays, so does what it names, in whichever segment."""
        tokens = self.stage(1, b"of b" * 50, topic="b")
        self.fill(("a", 100, 100))
        self.commit(1, tokens)
        self.fill(("a", 100, 100))
        self.now += 2 * DAY
        self.assertEqual(self.clean().rewritten, 2)
        self.assertEqual([topic for _, topic, _ in recordsOf(self.journal)], ["b"])
        self.assertSame(recordsOf(self.journal))

    def test_transactionGone(self) -> None:
        """When a transaction has expired it goes, and with the next pass what it names."""
        tokens = self.stage(1, b"of a" * 50)
        self.fill(("a", 100, 100))
        self.commit(1, tokens)
        self.fill(("a", 100, 100))
        self.now += 2 * DAY
        self.clean()
        self.assertEqual(recordsOf(self.journal), [])
        self.journal.opened.staging.expire()
        self.clean()
        self.assertEqual(len(self.journal.segments), 1)
        self.assertSound()

    def test_aborted(self) -> None:
        """What was aborted never comes back."""
        tokens = self.stage(1, b"never" * 50, topic="b")
        self.fill(("a", 100, 100))
        self.journal.abortStaged("q", 1)
        self.fill(("b", 1, 10), ("a", 100, 100))
        self.now += 11 * SECOND
        self.clean()
        self.again()
        self.assertEqual(self.journal.segments.staged(), [])
        self.assertEqual(len(tokens), 1)
        self.assertEqual([topic for _, topic, _ in recordsOf(self.journal)], ["b"])


class DamageTests(RetentionCase):
    """Segments with damage in them."""

    def test_keptAsItIs(self) -> None:
        """A segment that turns out to be damaged is not touched, and the operator is told."""
        self.fill(("b", 1, 10), ("a", 100, 100), ("b", 1, 10))
        state = self.disk.now()
        name = f"{FOLDER}/{segmentName(0)}"
        content = bytearray(state.files[state.names[name]])
        content[5000] ^= 1
        state.files[state.names[name]] = bytes(content)
        self.disk = Recorder(state)
        opened = self.journal.opened
        self.journal = JournalAtOnce(self.disk, FOLDER, now=lambda: self.now)
        self.journal.opened = opened  # it does not know of the damage
        self.now += 11 * SECOND
        self.assertEqual(self.clean(), FreedSpace())
        self.assertEqual(self.disk.now().files[self.disk.now().names[name]], content)
        self.assertEqual(len(self.said), 1)
        self.assertFalse(self.disk.exists(f"{name}.new"))


class Courses(RetentionCase):
    """Long random courses of everything together."""

    def test_random(self) -> None:
        """Whatever was done in whichever order, all that has to be there is, and nothing that was never published."""
        rewritten = removed = 0
        for seed in range(12):
            self.setUp()
            freed = self.course(Random(seed))
            rewritten += freed.rewritten
            removed += freed.removed
        self.assertGreater(min(rewritten, removed), 10)

    def course(self, random: Random) -> FreedSpace:
        """Do a hundred steps, and look at what is there after each restart and at the end."""
        self.published: dict[int, tuple[str, bytes, int]] = {}
        self.needs: dict[str, int] = {}
        self.gone: set[int] = set()
        self.staged: list[tuple[int, str, Callable[[int, str | None], None]]] = []
        self.batch, total = 0, FreedSpace()
        for _ in range(100):
            self.now += random.randrange(2 * SECOND)
            step = random.choices(["publish", "stage", "commit", "roll", "clean", "need", "restart"],
                                  [8, 1, 1, 3, 3, 1, 1])[0]  # fmt: skip
            if step == "clean":
                freed = self.clean(self.needs)
                self.assertEqual(self.said, [])
                total = FreedSpace(*map(sum, zip(total, freed, strict=True)))
            else:
                getattr(self, f"do_{step}")(random)
        self.do_restart(random)
        return total

    def do_publish(self, random: Random) -> None:
        """Publish some runs, some of them in one frame."""
        topics = "aaabc" if random.random() < 0.2 else "aaac"
        for _ in range(random.randint(1, 20)):
            topic = random.choice(topics)
            body = [random.randbytes(random.choice((0, 5, 200))) for _ in range(random.choice((1, 1, 1, 30)))]
            self.journal.append(*published(body, topic), self.known(topic, body))
            if random.random() < 0.5:
                self.journal.worker.drain()
        self.journal.worker.drain()

    def known(self, topic: str, body: list[bytes]) -> Callable[[int, str | None], None]:
        """Return what remembers a run when it is committed."""
        time = self.now

        def committed(offset: int, reason: str | None) -> None:
            self.published.update((offset + place, (topic, payload, time)) for place, payload in enumerate(body))

        return committed

    def do_stage(self, random: Random) -> None:
        """Stage a batch."""
        self.batch += 1
        topic, body = random.choice("aaab"), [random.randbytes(50) for _ in range(random.randint(1, 5))]
        run = [published(body, topic)]
        # The time of a message is that of its staging.
        batch, known = self.batch, self.known(topic, body)
        self.journal.stage("q", batch, "0", run, lambda token, reason: self.staged.append((batch, str(token), known)))
        self.journal.worker.drain()

    def do_commit(self, random: Random) -> None:
        """Commit the latest batch that was staged."""
        if self.staged:
            batch, token, known = self.staged.pop()
            self.staged.clear()
            self.journal.commitStaged("q", batch, [token], known)
            self.journal.worker.drain()

    def do_roll(self, random: Random) -> None:
        """Begin a new segment."""
        self.roll()

    def do_need(self, random: Random) -> None:
        """Let a queue need something that is there, or nothing any more."""
        there = [each for each in recordsOf(self.journal) if each[1] == "c"]
        self.needs = {"c": random.choice(there)[0]} if there and random.random() < 0.7 else {}
        # What has gone before, and stands behind what it needs, does not come back.
        self.gone = self.published.keys() - {each[0] for each in there}

    def do_restart(self, random: Random) -> None:
        """Open the journal again, with or without its indexes, and look at what is there."""
        if random.random() < 0.5:
            for base in self.bases()[:-1]:
                if self.disk.exists(f"{FOLDER}/{indexName(base)}"):
                    self.disk.remove(f"{FOLDER}/{indexName(base)}")
        self.again()
        self.assertEqual(self.journal.health()["lost"], [])
        self.assertSound()
        there = recordsOf(self.journal)
        for offset, topic, payload in there:
            self.assertEqual(self.published[offset][:2], (topic, payload))
        wanted = {
            offset
            for offset, (topic, _, time) in self.published.items()
            if topic == "b"
            or (topic == "a" and time >= self.now - 10 * SECOND)
            or (topic == "c" and offset >= self.needs.get(topic, NOW) and offset not in self.gone)
        }
        found = [offset for offset, _, _ in there]
        self.assertEqual(found, sorted(set(found)))
        self.assertEqual(wanted - set(found), set())
        counts = {topic: bounds.count for topic, bounds in self.journal.bounds().items()}
        for topic in "abc":
            self.assertEqual(counts.get(topic, 0), sum(each[1] == topic for each in there))


class Killed(BaseException):
    """The process ends."""


class KilledAt(Files):
    """The disk of another; at the n-th operation that changes something, and at all behind it, the process ends."""

    def __init__(self, disk: Recorder, number: int, error: BaseException) -> None:
        self.left = number
        self._disk = disk
        self._error = error

    def __getattribute__(self, name: str) -> Any:
        own = object.__getattribute__
        if name in ("left", "__class__"):
            return own(self, name)
        found = getattr(own(self, "_disk"), name)
        if name not in ("create", "write", "truncate", "sync", "rename", "remove", "syncFolder"):
            return found

        def counted(*arguments: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                raise own(self, "_error")
            return found(*arguments)

        return counted


class CrashTests(RetentionCase):
    """A pass that ends at any of its operations."""

    def load(self) -> list[Record]:
        """Fill the journal so that a pass removes, empties, joins and rewrites, and return what has to stay."""
        self.fill(("a", 20, 100))
        self.fill(("a", 20, 100))
        self.fill(("b", 2, 100), ("a", 20, 100), ("b", 1, 100))
        for _ in range(3):
            self.fill(("a", 20, 100))
        self.fill(("b", 2, 100))
        self.now += 11 * SECOND
        return [each for each in recordsOf(self.journal) if each[1] == "b"]

    def assertRetentionRule(self, state: State, wanted: list[Record], before: list[Record]) -> None:
        """See that a journal in this state has what it has to have, nothing else than before, and can be cleaned."""
        disk = Recorder(state)
        found = recover(disk, FOLDER, self.journal.id)
        self.assertEqual((found.lost, found.torn), ([], []))
        self.disk = Recorder(state)
        self.begin(self.disk)
        there = recordsOf(self.journal)
        self.assertEqual([each for each in there if each[1] == "b"], wanted)
        self.assertLessEqual(set(there), set(before))
        bounds = self.journal.bounds()
        for topic in ("a", "b"):
            known = bounds[topic].count if topic in bounds else 0
            self.assertEqual(known, sum(each[1] == topic for each in there))
        self.clean()
        self.assertEqual(recordsOf(self.journal), wanted)
        self.assertSound()

    def test_killed(self) -> None:
        """Wherever the process ends, all that has to stay is there, and the next pass does the rest."""
        wanted = self.load()
        before, begun, journal = recordsOf(self.journal), self.disk.now(), self.journal
        number, ended = 0, False
        while not ended:
            disk = Recorder(begun)
            self.disk = disk
            self.begin(disk)
            files = KilledAt(disk, number, Killed())
            try:
                self.clean(files=files)
            except Killed:
                pass
            ended = files.left >= 0
            self.assertRetentionRule(disk.now(), wanted, before)
            number += 1
        self.assertGreater(number, 20)
        self.assertEqual(journal.id, self.journal.id)

    def test_power(self) -> None:
        """Wherever the power goes, whatever was not synced is there or not: the same."""
        wanted = self.load()
        before, begun = recordsOf(self.journal), self.disk.now()
        disk = Recorder(begun)
        self.disk = disk
        self.begin(disk)
        start = len(disk.changes)
        self.clean()
        crash = Crash(disk)
        random = Random(7)
        tried = 0
        while crash.done < len(disk.changes):
            crash.step()
            if crash.done <= start:
                continue
            for how in ("dropped", "kept", "names", "contents", "torn", "torn"):
                self.assertRetentionRule(crash.left(random, how), wanted, before)
                tried += 1
        self.assertGreater(tried, 100)

    @nightly
    def test_everySyncMatters(self) -> None:
        """Without any one of the syncs of a pass some power loss loses something."""
        wanted = self.load()
        before, begun, journal = recordsOf(self.journal), self.disk.now(), self.journal
        disk = Recorder(begun)
        self.disk = disk
        self.begin(disk)
        known = set(disk.sites)
        self.clean()
        sites = sorted(each for each in disk.sites - known)
        self.assertEqual(len(sites), 7, sites)
        for site in sites:
            self.assertTrue(self.loses(begun, site, wanted, before), site)
        self.assertEqual(journal.id, self.journal.id)

    def loses(self, begun: State, site: str, wanted: list[Record], before: list[Record]) -> bool:
        """Tell whether some power loss does harm if this sync does nothing."""
        disk = Recorder(begun, frozenset({site}))
        self.disk = disk
        self.begin(disk)
        start = len(disk.changes)
        self.clean()
        crash = Crash(disk)
        random = Random(7)
        while crash.done < len(disk.changes):
            crash.step()
            for how in ("dropped", "names", "contents", *["torn"] * 24) if crash.done > start else ():
                try:
                    self.assertRetentionRule(crash.left(random, how), wanted, before)
                except Exception:
                    return True
        return False

    def test_fullDisk(self) -> None:
        """A disk that takes no more ends a pass; the journal is as it was, and the operator is told."""
        wanted = self.load()
        before = recordsOf(self.journal)
        told = 0
        for number in range(80):
            files = KilledAt(self.disk, number, OSError(errno.ENOSPC, "No space left on device"))
            self.clean(files=files)
            if files.left >= 0:
                break
            words = "what has expired could not be taken out of the journal: no space left on device"
            self.assertLessEqual(set(self.said), {words})
            told += len(self.said)
            there = recordsOf(self.journal)
            self.assertEqual([each for each in there if each[1] == "b"], wanted)
            self.assertLessEqual(set(there), set(before))
        self.assertGreater(told, 5)
        self.assertSame(recordsOf(self.journal))
