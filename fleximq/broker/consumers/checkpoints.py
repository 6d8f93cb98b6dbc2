"""What outlives the broker of its queues: put into checkpoints, and brought back from them and what came after.

A start gives the last checkpoint's snapshot, then all records and notes behind it, in the order of the log. A queue
counts a record from the offset on at which it was opened, although the note of that may stand behind the record.

What a start remembers of the records that it goes through: enough to put them into queues that were opened late.
"""

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import compress
from typing import Any, NamedTuple, Protocol

from fleximq.broker.consumer_groups import ConsumerGroups
from fleximq.broker.consumers.polled_subscriptions import PolledSubscription, PolledSubscriptions, keyOf
from fleximq.broker.consumers.state_log import IDS, OpeningLog, StateLog
from fleximq.broker.consumers.work_queues import WorkQueue, WorkQueues
from fleximq.broker.consumers.work_queues import keyOf as keyOfQueue
from fleximq.broker.publishing.deduplication import RecentIds
from fleximq.broker.queues.durable_queue import DurableQueue
from fleximq.broker.queues.queue_state import QueueState
from fleximq.broker.rules import TimesToLive
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.values.records import QOS1, StoredBatch
from fleximq.values.state_records import QueueAcknowledged, QueueClosed, QueueDelivered, QueueOpened, StateRecord


class Arrival(NamedTuple):
    """What queues need of a batch; it holds none of its bytes.

    ``topicOf`` is None where all records are of the first topic, ``contents`` None where all are of QoS1. ``time`` is
    that of the last record.
    """

    topics: Sequence[str]
    topicOf: Sequence[int] | None
    offsets: Sequence[int]
    contents: Sequence[int] | None
    time: int

    @classmethod
    def of(cls, batch: StoredBatch) -> "Arrival":
        """Return this of a batch."""
        topics, offsets, contents = batch.topics, batch.offsets, batch.contents
        tracked = all(code & QOS1 for code in set(contents))
        return cls(
            topics,
            None if len(topics) == 1 else array("I", batch.topicOf),
            offsets if isinstance(offsets, range) else array("Q", offsets),
            None if tracked else array("H", contents),
            batch.timestamps[-1],
        )

    def places(self) -> Sequence[int]:
        """Return the places of the topics that have records."""
        return (0,) if self.topicOf is None else sorted(set(self.topicOf))

    def only(self, place: int) -> "Arrival":
        """Return what is of one topic."""
        topicOf, contents = self.topicOf, self.contents
        if topicOf is None:
            return self
        mine = [of == place for of in topicOf]
        return self._replace(
            offsets=list(compress(self.offsets, mine)),
            contents=None if contents is None else list(compress(contents, mine)),
        )

    def tracked(self) -> Sequence[int]:
        """Return the offsets of those that are of QoS1."""
        if self.contents is None:
            return self.offsets
        return [offset for offset, code in zip(self.offsets, self.contents, strict=True) if code & QOS1]


#: After a crash, so many messages of a queue may have been handed out behind those of which it is known, and so many in
#: all: what a consumer is given while the notes of it wait for the disk. Of more of them it is not found out.
_MAX_ASSUMED, _MAX_ASSUMED_IN_ALL = 256, 8192


class RestoredQueues(Protocol):
    """What a journal found when it was opened: the last snapshot, and how to go through what came after it."""

    @property
    def snapshot(self) -> Mapping[str, Any] | None:
        """The last snapshot, None if there is none."""

    @property
    def clean(self) -> bool:
        """Whether the last stop was an orderly one, so that nothing was left to be noted."""

    def replay(self, batches: Callable[[StoredBatch], None], notes: Callable[[StateRecord], None]) -> None:
        """Give all records and notes behind the snapshot, in order."""


class Checkpointer:
    """Makes snapshots of all kept queues, and the queues out of snapshots."""

    def __init__(
        self,
        noting: StateLog,
        openings: OpeningLog,
        topics: TopicTable,
        subscriptions: PolledSubscriptions,
        queues: WorkQueues,
        idempotence: RecentIds,
        timesToLive: TimesToLive,
        groups: ConsumerGroups,
    ) -> None:
        self._noting = noting
        self._openings = openings
        self._topics = topics
        self._subscriptions = subscriptions
        self._queues = queues
        self._idempotence = idempotence
        self._timesToLive = timesToLive
        self._groups = groups
        self._states: dict[str, QueueState] = {}
        self._byTopic: dict[str, list[QueueState]] = {}
        self._recent: list[Arrival] = []

    # -- while the broker runs ---------------------------------------------------------------------

    def flush(self) -> None:
        """Tell the journal what became of messages so far."""
        self._noting.flush()

    def needed(self) -> dict[str, int]:
        """Return the lowest offset that a queue of each topic needs; ``end`` where it needs nothing yet."""
        end = self._noting.journal.end
        needed: dict[str, int] = {}
        for topic, queue in self._kept():
            needed[topic] = min(needed.get(topic, end), queue.lowest() or end)
        return needed

    def reading(self) -> dict[str, int]:
        """Return the offset that each consumer group reads next; nothing is kept for them."""
        return self._groups.reading()

    def _kept(self) -> list[tuple[str, DurableQueue]]:
        found = [(each.topic, each.queue) for each in self._subscriptions] + [
            (each.name, each.queue) for each in self._queues
        ]
        return [(topic, queue) for topic, queue in found if isinstance(queue, DurableQueue)]

    # -- snapshots ---------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        """Return all that a restart needs and cannot find in what comes after, as values that MessagePack has."""
        self.flush()
        states = [self._stateOfSubscription(each) for each in self._subscriptions if each.durable]
        states += [self._stateOfQueue(each) for each in self._queues if each.durable]
        return {
            "lastId": max(self._subscriptions.lastId, self._openings.lastId),
            "queues": [state.dump() for state in states],
            "idempotence": self._idempotence.snapshot(),
            "groups": self._groups.snapshot(),
        }

    def _stateOfSubscription(self, each: PolledSubscription) -> QueueState:
        idle = each.idleSince
        used = 0 if idle is None else round(idle * 1_000_000)
        return self._described(QueueState(keyOf(each.id), each.topic, each.qos, each.id, each.owner, 0), each, used)

    def _stateOfQueue(self, each: WorkQueue) -> QueueState:
        state = QueueState(keyOfQueue(each.name), each.name, 1, 0, None, 0, consumed=each.everConsumed)
        return self._described(state, each, round(each.lastUsed * 1_000_000))

    def _described(self, state: QueueState, each: PolledSubscription | WorkQueue, used: int) -> QueueState:
        state.seen = self._noting.journal.end
        state.used = used
        if isinstance(each.queue, DurableQueue):
            each.queue.describe(state)
        return state

    # -- a start -----------------------------------------------------------------------------------

    def restore(self, found: RestoredQueues) -> None:
        """Make all queues what they were, before anybody is there to use them."""
        self.begin(found.snapshot)
        found.replay(self.restored, self.noted)
        self.finish(found.clean)

    def begin(self, snapshot: Mapping[str, Any] | None) -> None:
        """Take in a snapshot; None: there is none."""
        if snapshot:
            self._idsGiven(snapshot["lastId"])
            for dumped in snapshot["queues"]:
                self._know(QueueState.load(dumped))
            self._idempotence.restore(snapshot["idempotence"])
            self._groups.restore(snapshot)

    def restored(self, batch: StoredBatch) -> None:
        """Take in the next records of the log."""
        if not len(batch):
            return
        arrival = Arrival.of(batch)
        self._recent.append(arrival)
        self._idempotence.restored(batch)
        self._arrive(arrival, self._byTopic)

    def noted(self, note: StateRecord) -> None:
        """Take in the next note of the log."""
        if isinstance(note, QueueOpened):
            self._open(note)
        elif isinstance(note, QueueClosed):
            state = self._states.pop(note.key, None)
            if state is not None:
                self._byTopic[state.topic].remove(state)
        elif isinstance(note, QueueDelivered):
            if note.key in self._states:
                self._states[note.key].handedOut(note)
        elif isinstance(note, QueueAcknowledged):
            if note.key in self._states:
                self._states[note.key].acknowledged(note.offsets)
        else:
            self._groups.noted(note)

    def finish(self, clean: bool = True) -> None:
        """Make the queues of what was taken in.

        :param clean: whether all that was handed out is known to be.
        """
        states, self._states, self._byTopic, self._recent = self._states, {}, {}, []
        wall = self._noting.wall()
        for state in states.values():
            state.markGaps()
        if not clean:
            assumeDelivered(states.values(), wall)
        for state in states.values():
            idle = max(0, wall - state.used) / 1_000_000 if state.used else 0.0
            if state.isSubscription:
                subscription = self._subscriptions.restore(state, idle)
                self._topics.subscribe(subscription, state.topic, guard=subscription, durable=True)
            else:
                queue = self._queues.restore(state, idle)
                self._topics.subscribe(queue, state.topic, queue=True, durable=True)
        self._noting.soon(lambda: self._queues.learn(self._noting.journal))

    def _idsGiven(self, last: int) -> None:
        self._subscriptions.lastId = self._openings.lastId = max(self._subscriptions.lastId, last)

    def _know(self, state: QueueState) -> None:
        self._states[state.key] = state
        self._byTopic.setdefault(state.topic, []).append(state)

    def _open(self, note: QueueOpened) -> None:
        if note.key == IDS:
            self._idsGiven(note.id)
        elif note.key not in self._states:
            state = QueueState.opened(note)
            self._know(state)
            missed = []
            for arrival in reversed(self._recent):
                if arrival.offsets[-1] < note.offset:
                    break
                missed.append(arrival)
            for arrival in reversed(missed):
                self._arrive(arrival, {note.topic: [state]})

    def _arrive(self, arrival: Arrival, byTopic: Mapping[str, Sequence[QueueState]]) -> None:
        """Let the records arrive in the queues of their topics."""
        for place in arrival.places():
            topic = arrival.topics[place]
            states = byTopic.get(topic)
            if states:
                mine = arrival.only(place)
                age = None if self._timesToLive.of(topic) is None else arrival.time
                for state in states:
                    state.arrive(mine.tracked() if state.isSubscription else mine.offsets, age)


def assumeDelivered(
    states: Iterable[QueueState], now: int, ofOne: int = _MAX_ASSUMED, inAll: int = _MAX_ASSUMED_IN_ALL
) -> None:
    """Let those messages be acknowledged that may have been handed out in the moment before a crash.

    Queues that were used last come first: that is where it matters, if there are too many.
    """
    left = inAll
    for state in sorted(states, key=lambda state: state.used or now, reverse=True):
        if left <= 0:
            return
        left -= state.assumeDelivered(min(left, ofOne))
