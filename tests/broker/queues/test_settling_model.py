"""A queue with leases, retries, rejections and keys beside a plain list, in memory and durable, over restarts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgpack
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.consumers.state_log import StateLog
from fleximq.broker.envelope import ConnectedClient, Envelope, LastDelivery, MessageSource, QueueDelivery
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.queues.queued_form import QUEUED
from fleximq.broker.topics.topic_table import Topic
from fleximq.journal.writing.commit import MergedStateRecords
from fleximq.values.message import Content, Message
from fleximq.values.message_cost import costOf
from fleximq.values.publication_head import headOf
from fleximq.values.state_records import QueueAcknowledged, QueueDelivered, QueueMoved, StateRecord
from tests.broker.queueing import RETRY, World
from tests.journal_records import published
from tests.nightly import repetitions
from tests.slow_journal import SlowJournal

DELIVERIES = 4
#: Of a durable queue about three messages are in memory.
MEMORY = 6 * 280
#: Microseconds since 1970 at the beginning.
BEGIN = 10**9
HOLDERS = st.sampled_from("xyz")


@dataclass(eq=False)
class _Kept:
    """A message in the model; ``hidden`` while it is in flight or delayed, ``due`` then until when, None: no limit.
    A message without a holder was taken without a lease. ``recorded`` is the time of the last record: the journal does
    not learn that a message returned earlier.
    """

    tag: int
    message: Message
    key: str | None
    attempts: int = 0
    hidden: bool = False
    due: float | None = None
    holder: str | None = None
    delayed: bool = False
    recorded: float | None = None

    def show(self) -> None:
        self.hidden, self.due, self.holder, self.delayed = False, None, None, False


class SettlingMachine(RuleBasedStateMachine):
    """Each step is done to the queue and to the list."""

    durable = False
    ordered = False

    def __init__(self) -> None:
        super().__init__()
        self.world = World()
        self.journal = SlowJournal()
        self.log = StateLog(self.journal, self.world.deadlines, self.store, self.wall)
        self.topic = Topic("t")
        self.dead: list[int] = []
        self.expectedDead: list[int] = []
        self.kept: list[_Kept] = []
        self.number = 0
        self.restarted = False
        self.base = QueueState("q:t", "t", 1, 0, None, 1).dump()
        self.queue = self.open(None)

    def wall(self) -> int:
        return BEGIN + round(self.world.deadlines.seconds() * 1_000_000)

    def store(self, queue: Queue, last: LastDelivery, kept: Callable[[str | None], None]) -> None:
        self.died(queue, last)
        kept(None)

    def died(self, queue: Queue, last: LastDelivery) -> None:
        self.dead.append(int(last.message.payload))

    def open(self, state: QueueState | None) -> Queue:
        make = self.world.makeQueue(
            maxMessages=10_000,
            maxBytes=10**9,
            maxDeliveries=DELIVERIES,
            onDead=self.died,
            queueLog=self.log if self.durable else None,
            memory=MEMORY,
        )
        queue = make("t", "q:t", dropsOldest=False)
        queue.isOrdered = self.ordered
        if state is not None and queue.recorder is not None:
            queue.recorder.restore(state)
        return queue

    # -- the model -----------------------------------------------------------------------------------

    def of(self, tag: int) -> _Kept | None:
        return next((each for each in self.kept if each.tag == tag), None)

    def next(self) -> _Kept | None:
        for each in self.kept:
            if not each.hidden and not (self.ordered and each.key is not None and self.first(each.key) is not each):
                return each
        return None

    def first(self, key: str) -> _Kept:
        return next(each for each in self.kept if each.key == key)

    def handOut(self, holder: str | None, number: int, lease: float | None) -> list[tuple[int, bytes, int]]:
        found: list[tuple[int, bytes, int]] = []
        seconds = RETRY if lease is None else lease
        while len(found) < number and (following := self.next()) is not None:
            following.attempts += 1
            following.hidden, following.holder = True, None if lease is None else holder
            following.due = self.world.clock.seconds() + seconds if seconds else None
            following.recorded = following.due if lease is None else None
            found.append((following.tag, following.message.payload, following.attempts))
        return found

    def takeBack(self, returning: list[_Kept]) -> None:
        for each in returning:
            each.show()
            if each.attempts >= DELIVERIES:
                self.kept.remove(each)
                self.expectedDead.append(int(each.message.payload))

    # -- steps ---------------------------------------------------------------------------------------

    @rule(keys=st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=6))
    def publish(self, keys: list[str | None]) -> None:
        for key in keys:
            self.number += 1
            pairs = msgpack.packb({"key": key}) if key else b""
            message = Message(b"%d" % self.number, Content.MESSAGEPACK, head=headOf("t", pairs, 1000))
            self.kept.append(_Kept(self.number, message, key))
            self.deliver(message)

    def deliver(self, message: Message) -> None:
        envelope = Envelope(self.topic, ConnectedClient(1000, "fleximq", "fleximq-1000"), MessageSource())
        if not self.durable:
            self.queue.deliver([message], 1)
            return

        def committed(offset: int, reason: str | None) -> None:
            self.queue.deliver(QUEUED.render(envelope._replace(offset=offset), [message], 1), 1)

        self.journal.append(*published(envelope, [message]), committed)
        self.journal.commit()

    @rule(holder=HOLDERS, number=st.integers(1, 5), lease=st.sampled_from([None, 0, 0, 5, 12]))
    def take(self, holder: str, number: int, lease: float | None) -> None:
        taken: list[QueueDelivery] = []
        while len(taken) < number:
            some = self.queue.takeMany(None if lease is None else holder, number - len(taken), lease=lease)
            taken += some
            if not some and not self.queue.preparing and not self.queue.available():
                break
        found = [(tag, message.payload, attempts) for tag, message, attempts in taken]
        assert sorted(found) == sorted(self.handOut(holder, number, lease)), found
        self.world.clock.advance(0)  # the records are made at the end of the turn

    @rule(back=st.integers(0, 12))
    def acknowledge(self, back: int) -> None:
        each = self.of(self.number - back)
        known = each is not None and (each.hidden or each.attempts > 0)
        if each is not None and not known:
            return  # never delivered: only its place in the queue decides if its tag is known
        assert self.queue.acknowledge(self.number - back) == known
        if each is not None:
            self.kept.remove(each)

    @rule(back=st.integers(0, 12), delay=st.sampled_from([0, 3, 40, 100]))
    def retry(self, back: int, delay: float) -> None:
        each = self.of(self.number - back)
        if each is not None and each.delayed:
            return  # it is no consumer's
        tag = self.number - back
        assert self.queue.retryMany([tag], delay) == ([] if each is not None and each.hidden else [tag])
        if each is None or not each.hidden:
            return
        if delay and each.attempts < DELIVERIES:
            each.holder, each.due, each.delayed = None, self.world.clock.seconds() + delay, True
            each.recorded = each.due
        else:
            each.recorded = None
            self.takeBack([each])

    @rule(back=st.integers(0, 12))
    def reject(self, back: int) -> None:
        each = self.of(self.number - back)
        assert self.queue.reject(self.number - back, "no") == (each is not None and each.hidden)
        if each is not None and each.hidden:
            self.kept.remove(each)
            self.expectedDead.append(int(each.message.payload))

    @rule(back=st.integers(0, 12), seconds=st.sampled_from([1, 20, 100]))
    def extend(self, back: int, seconds: float) -> None:
        each = self.of(self.number - back)
        if each is None or not each.hidden or each.holder is None:
            return
        assert self.queue.extend(each.tag, seconds, each.holder)
        each.due = self.world.clock.seconds() + seconds

    @rule(holder=HOLDERS)
    def consumerDies(self, holder: str) -> None:
        self.queue.release(holder)
        self.takeBack([each for each in self.kept if each.holder == holder])

    @rule(seconds=st.integers(1, 40))
    def wait(self, seconds: int) -> None:
        for _ in range(seconds):
            self.world.clock.advance(1)
            now = self.world.clock.seconds()
            self.takeBack([each for each in self.kept if each.due is not None and each.due <= now])

    # -- restarts ------------------------------------------------------------------------------------

    @precondition(lambda self: self.durable)
    @rule()
    def checkpoint(self) -> None:
        """A checkpoint while the queue goes on."""
        self.base = self.snapshot().dump()

    def snapshot(self) -> QueueState:
        self.log.flush()
        self.journal.notes.clear()
        state = QueueState("q:t", "t", 1, 0, None, self.journal.end)
        assert self.queue.recorder is not None
        self.queue.recorder.writeInto(state)
        for each in self.kept:
            each.recorded = None if each.holder else each.due
        return state

    @precondition(lambda self: self.durable)
    @rule()
    def closeAndOpen(self) -> None:
        self.reopen(self.snapshot())
        self.endLastDeliveries()

    @precondition(lambda self: self.durable)
    @rule(together=st.integers(1, 5), assumed=st.integers(0, 3))
    def crash(self, together: int, assumed: int) -> None:
        """The state is that of the last checkpoint and of the records after it, committed in groups."""
        self.log.flush()
        state = QueueState.load(self.base)
        state.arrive(range(state.seen, self.journal.end))
        notes: list[StateRecord] = self.journal.notes
        for start in range(0, len(notes), together):
            merged = MergedStateRecords()
            for note in notes[start : start + together]:
                merged.add(note)
            for note in merged.take():
                self.apply(state, note)
        state.markGaps()
        state.assumeDelivered(assumed)
        self.reopen(state)
        for each in self.kept:
            if not each.hidden and (each.recorded or 0) > self.world.clock.seconds():
                each.hidden, each.due = True, each.recorded
        self.endLastDeliveries()

    def endLastDeliveries(self) -> None:
        """Those that ended with the broker make dead letters in the next turn."""
        self.world.clock.advance(0)
        self.takeBack([each for each in self.kept if not each.hidden and each.attempts >= DELIVERIES])

    def apply(self, state: QueueState, note: StateRecord) -> None:
        steps: dict[type, Callable[[Any], None]] = {
            QueueDelivered: state.handedOut,
            QueueMoved: state.moved,
            QueueAcknowledged: lambda note: state.acknowledged(note.offsets),
        }
        steps[type(note)](note)

    def reopen(self, state: QueueState) -> None:
        self.queue.close()
        self.base = state.dump()
        self.journal.notes.clear()
        self.queue = self.open(QueueState.load(self.base))
        self.restarted = True
        for each in self.kept:
            if each.holder is not None:
                each.show()

    # -- both alike ----------------------------------------------------------------------------------

    @invariant()
    def looksAlike(self) -> None:
        stored = self.queue.stored
        assert len(stored.flying) == sum(each.hidden for each in self.kept)
        assert stored.all == len(self.kept)
        assert {each.tag for each in self.kept if each.hidden or each.attempts} <= {
            each.tag for each in stored.delivered()
        }
        if not self.restarted:
            assert stored.flying.delayed == sum(each.delayed for each in self.kept)
        if not self.durable:
            assert stored.size == sum(costOf(each.message) for each in self.kept)

    @invariant()
    def nothingFails(self) -> None:
        assert sorted(self.dead) == sorted(self.expectedDead)
        assert self.world.errors == []

    def teardown(self) -> None:
        """In the end all messages can be delivered and acknowledged."""
        for holder in "xyz":
            self.consumerDies(holder)
        self.wait(101)
        while self.kept:
            before = len(self.kept)
            self.take("x", 5, 0)
            mine = [each for each in self.kept if each.holder == "x"]
            assert self.queue.acknowledgeMany([each.tag for each in mine]) == []
            self.kept = [each for each in self.kept if each not in mine]
            assert len(self.kept) < before
        assert (self.queue.stored.all, self.queue.stored.size) == (0, 0)


class DurableMachine(SettlingMachine):
    """Of a durable queue most messages are on disk."""

    durable = True


class OrderedMachine(SettlingMachine):
    """A queue that delivers one message of a key at a time."""

    ordered = True


class OrderedDurableMachine(DurableMachine):
    """The same, durable."""

    ordered = True


class SettlingModelTests(SynchronousTestCase):
    """Queues and the model side by side, through many random lives."""

    def test_inMemory(self) -> None:
        self.compare(SettlingMachine)

    def test_durable(self) -> None:
        self.compare(DurableMachine)

    def test_orderedInMemory(self) -> None:
        self.compare(OrderedMachine)

    def test_orderedDurable(self) -> None:
        self.compare(OrderedDurableMachine)

    def compare(self, machine: type[SettlingMachine]) -> None:
        some = settings(max_examples=repetitions(60, 750), stateful_step_count=40, deadline=None)
        run_state_machine_as_test(machine, settings=some)
