"""Checkpoints of durable queues: snapshots for the journal, and recovery from a snapshot and the later log.

The state record of a queue's opening may be later in the log than the records from which on it counts, so recovery
remembers recent records for it.
"""

from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import merge
from itertools import compress
from typing import Any, NamedTuple

from zope.interface import implementer

from fleximq.broker.consumer_groups import ConsumerGroups
from fleximq.broker.consumers import queue_sources
from fleximq.broker.consumers.lanes import laneKey
from fleximq.broker.consumers.polled_subscriptions import PolledSubscriptions
from fleximq.broker.consumers.queue_owner import QueueOwner
from fleximq.broker.consumers.queue_sources import RestoredSources
from fleximq.broker.consumers.state_log import IDS, StateLog
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.consumers.work_queues import WorkQueues
from fleximq.broker.key_values.key_values import KeyValues
from fleximq.broker.key_values.value_stores import VALUES, valuesIn
from fleximq.broker.publishing.deduplication import RecentIds
from fleximq.broker.publishing.transactions import Transactions
from fleximq.broker.queues.queue_state import NO_EXPIRIES, QueueState
from fleximq.broker.queues.recorder import Recorder
from fleximq.broker.rules import AgeLimits
from fleximq.broker.schedules.schedule_header import SCHEDULES, publishedTo
from fleximq.broker.schedules.schedule_recovery import ScheduleRecovery
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.interfaces import IQueueState, IRecoveredState
from fleximq.limits import SUBSCRIPTION_FEED, SYSTEM
from fleximq.values.publication_head import PRIORITY
from fleximq.values.queue_definition import QueueDefinition
from fleximq.values.records import QOS1, StoredBatch
from fleximq.values.state_records import (
    QueueAcknowledged,
    QueueClosed,
    QueueDefined,
    QueueDelivered,
    QueueMoved,
    QueueOpened,
    StateRecord,
    ValuesRemoved,
    dumped,
)


class Arrival(NamedTuple):
    """The fields of a batch that queues need, without its contents.

    ``topicOf`` is None if all records are of the first topic, ``contents`` None if all are of QoS1, ``priorities`` if
    all are usual. ``time`` is the time of the last record, ``expiries`` are those of single records by offset.
    """

    topics: Sequence[str]
    topicOf: Sequence[int] | None
    offsets: Sequence[int]
    contents: Sequence[int] | None
    time: int
    expiries: Mapping[int, int] = NO_EXPIRIES
    priorities: Sequence[int] | None = None

    @classmethod
    def of(cls, batch: StoredBatch) -> "Arrival":
        """Return a batch without its contents."""
        topics, offsets, contents = batch.topics, batch.offsets, batch.contents
        tracked = all(code & QOS1 for code in set(contents))
        return cls(
            topics,
            None if len(topics) == 1 else array("I", batch.topicOf),
            offsets if isinstance(offsets, range) else array("Q", offsets),
            None if tracked else array("H", contents),
            batch.timestamps[-1],
            batch.expiries(),
            batch.priorities(),
        )

    def places(self) -> Sequence[int]:
        """Return the indexes of the topics that have records."""
        return (0,) if self.topicOf is None else sorted(set(self.topicOf))

    def only(self, place: int) -> "Arrival":
        """Return the part of one topic."""
        topicOf = self.topicOf
        return self if topicOf is None else self._those([of == place for of in topicOf])

    def byPriority(self) -> "Iterator[tuple[int, Arrival]]":
        """Yield each priority with its part."""
        if self.priorities is None:
            yield PRIORITY, self
            return
        for priority in set(self.priorities):
            yield priority, self._those([each == priority for each in self.priorities])

    def _those(self, mine: Sequence[bool]) -> "Arrival":
        contents, priorities = self.contents, self.priorities
        return self._replace(
            offsets=list(compress(self.offsets, mine)),
            contents=None if contents is None else list(compress(contents, mine)),
            priorities=None if priorities is None else list(compress(priorities, mine)),
        )

    def tracked(self) -> Sequence[int]:
        """Return the offsets of those that are of QoS1."""
        if self.contents is None:
            return self.offsets
        return [offset for offset, code in zip(self.offsets, self.contents, strict=True) if code & QOS1]


#: After a crash, this many messages may have been delivered after the last known delivery, in one queue and in all:
#: those sent while state records awaited the disk. More are not assumed.
_MAX_ASSUMED, _MAX_ASSUMED_IN_ALL = 256, 8192


@implementer(IQueueState)
@dataclass(eq=False, repr=False)
class Checkpointer:
    """Makes snapshots of all durable queues, and restores the queues from them."""

    _stateLog: StateLog
    _topics: TopicTable
    _subscriptions: PolledSubscriptions
    _queues: WorkQueues
    _recentIds: RecentIds
    _timesToLive: AgeLimits
    _groups: ConsumerGroups
    _schedules: ScheduleRecovery
    _values: KeyValues
    _transactions: Transactions
    _states: dict[str, QueueState] = field(default_factory=dict)
    _sources: RestoredSources = field(default_factory=RestoredSources)
    #: The end of the journal at the last snapshot: earlier definitions are in it.
    _since: int = 0
    _recent: list[Arrival] = field(default_factory=list)

    def flush(self) -> None:
        """See :meth:`StateLog.flush`."""
        self._stateLog.flush()

    def needed(self) -> "dict[str, int | array[int]]":
        """Return the lowest offset that the queues of each topic need, ``end`` if they need none; and the offsets of
        the records of schedules that wait, and of values.
        """
        end = self._stateLog.journal.end
        needed: dict[str, int] = {}
        existing = self._stateLog.journal.bounds()
        for owner, recorder in self._durable():
            lowest = recorder.lowest() or end
            if isinstance(owner, WorkQueue):
                names = queue_sources.topicsOf(owner, existing)
            else:
                feed = f"{SUBSCRIPTION_FEED}{owner.id}"
                names = [owner.queue.name, feed] if feed in existing else [owner.queue.name]
            for name in names:
                needed[name] = min(needed.get(name, end), lowest)
        single = {SCHEDULES: self._schedules.needed(), VALUES: self._values.needed()}
        return {**needed, **{topic: offsets for topic, offsets in single.items() if offsets}}

    def _durable(self) -> Iterator[tuple[QueueOwner, Recorder]]:
        for owner in (*self._subscriptions, *self._queues):
            for lane in owner.lanes if isinstance(owner, WorkQueue) else (owner.queue,):
                if lane.recorder is not None:
                    yield owner, lane.recorder

    def reading(self) -> dict[str, int]:
        """Return the offset that each consumer group reads next; records are not retained for groups."""
        return self._groups.reading()

    def lags(self) -> bool:
        """Tell whether records wait for their delivery: a transaction that is being read back, and later ones."""
        return self._transactions.lags

    def begun(self) -> None:
        """Begin to publish schedules and to remove expired values, which would be refused before."""
        self._schedules.begin()
        self._values.begin()

    def snapshot(self) -> dict[str, Any]:
        """Return the state that a restart cannot derive from the later log, as MessagePack values."""
        self.flush()
        return {
            "lastId": max(self._subscriptions.lastId, self._stateLog.lastId),
            "queues": [self._stateOf(owner, recorder).dump() for owner, recorder in self._durable()],
            "idempotence": self._recentIds.snapshot(),
            "groups": dumped(self._groups),
            "schedules": self._schedules.snapshot(),
            "values": self._values.snapshot(),
            "definitions": [
                [each.name, each.definition.dump()] for each in self._queues if each.definition is not None
            ],
        }

    def _stateOf(self, each: QueueOwner, recorder: Recorder) -> QueueState:
        seen, idle = self._stateLog.journal.end, each.idle
        used = 0 if idle is None else self._stateLog.wall() - round(idle * 1_000_000)
        state = QueueState(
            recorder.key, each.queue.name, each.qos, each.id, each.owner, seen, used=used, consumed=each.everConsumed
        )
        recorder.writeInto(state)
        return state

    def restore(self, found: IRecoveredState) -> None:
        """Restore all queues; call this before clients can use them."""
        if found.snapshot:
            self._idsGiven(found.snapshot["lastId"])
            for name, definition in found.snapshot.get("definitions", ()):
                self._sources.definitions[name] = QueueDefinition.read(name, definition)
            for state in found.snapshot["queues"]:
                self._know(QueueState.load(state))
            self._recentIds.restore(found.snapshot["idempotence"])
            self._groups.restore(found.snapshot)
            self._schedules.restore(found.snapshot.get("schedules"))
            self._values.restore(found.snapshot.get("values"))
        found.replay(self._restored, self._noted)
        self._finish(found.clean)

    def _restored(self, batch: StoredBatch) -> None:
        if not len(batch):
            return
        self._recentIds.learn(batch, publishedTo)
        self._schedules.stored(batch)
        self._values.learn(valuesIn(batch))
        if any(each.startswith(SYSTEM) for each in batch.topics):  # queues do not receive system topics
            batch = batch.only(lambda name: not name.startswith(SYSTEM))
            if not len(batch):
                return
        arrival = Arrival.of(batch)
        self._recent.append(arrival)
        self._arrive(arrival, self._sources.of)

    def _noted(self, note: StateRecord) -> None:
        if isinstance(note, QueueOpened):
            self._open(note)
        elif isinstance(note, QueueClosed):
            state = self._states.pop(note.key, None)
            if state is not None and state.isFirst:
                self._sources.remove(state)
        elif isinstance(note, QueueDefined):
            self._define(note)
        elif isinstance(note, QueueDelivered):
            if note.key in self._states:
                self._states[note.key].handedOut(note)
        elif isinstance(note, QueueMoved):
            if note.key in self._states:
                self._states[note.key].moved(note)
        elif isinstance(note, QueueAcknowledged):
            if note.key in self._states:
                self._states[note.key].acknowledged(note.offsets)
        elif isinstance(note, ValuesRemoved):
            self._values.unlearn(note.revisions)
        elif not self._schedules.noted(note):
            self._groups.noted(note)

    def _finish(self, clean: bool) -> None:
        """Make the queues from the loaded state; ``clean``: state records of all deliveries were written."""
        states, self._states, self._recent = self._states, {}, []
        sources, self._sources = self._sources, RestoredSources()
        wall = self._stateLog.wall()
        for state in states.values():
            state.markGaps()
        if not clean:
            assumeDelivered(states.values(), wall)
        for definition in sources.definitions.values():
            self._queues.redefine(definition)
        for state in states.values():
            idle = max(0, wall - state.used) / 1_000_000 if state.used else 0.0
            if state.isSubscription:
                subscription = self._subscriptions.restore(state, idle)
                self._topics.subscribe(subscription, state.topic, guard=subscription, durable=True)
            else:
                self._queues.restore(state, idle)
        self._queues.allRestored()
        self._stateLog.soon(lambda: self._queues.restoredIds.read(self._stateLog.journal))

    def _idsGiven(self, last: int) -> None:
        self._subscriptions.lastId = self._stateLog.lastId = max(self._subscriptions.lastId, last)

    def _know(self, state: QueueState) -> None:
        self._states[state.key] = state
        if state.isFirst:
            self._sources.add(state)
        self._since = max(self._since, state.seen)

    def _open(self, note: QueueOpened) -> None:
        if note.key == IDS:
            self._idsGiven(note.id)
        elif note.key not in self._states:
            state = self._states[note.key] = QueueState.opened(note)
            self._sources.add(state)
            self._arriveAgain(state, note.offset)

    def _define(self, note: QueueDefined) -> None:
        """Apply a definition: from its offset on, the records of its sources are those of the queue."""
        known = self._sources.definitions.get(note.name)
        definition = None if note.definition is None else QueueDefinition.read(note.name, note.definition)
        if definition == known or note.offset < self._since:
            return
        mine = [each for each in self._states.values() if each.topic == note.name and not each.isSubscription]
        firsts = [each for each in mine if each.isFirst]
        for state in firsts:
            self._sources.remove(state)
        if definition is None:
            del self._sources.definitions[note.name]
        else:
            self._sources.definitions[note.name] = definition
        for state in firsts:
            self._sources.add(state)
        if known is not None and definition is not None and known.isFilledLike(definition):
            return
        for state in mine:
            state.forgetFrom(note.offset)
        for state in firsts:
            self._arriveAgain(state, note.offset)

    def _arriveAgain(self, state: QueueState, offset: int) -> None:
        """Add the records from an offset on that were replayed before."""
        missed = []
        for arrival in reversed(self._recent):
            if arrival.offsets[-1] < offset:
                break
            missed.append(arrival)
        matches = self._sources.matching(state)
        for arrival in reversed(missed):
            self._arrive(arrival, lambda topic: (state,) if matches(topic) else ())

    def _arrive(self, arrival: Arrival, statesOf: Callable[[str], Sequence[QueueState]]) -> None:
        """Add records to the queues that receive their topics."""
        mine: dict[str, tuple[QueueState, list[Sequence[int]]]] = {}
        for place in arrival.places():
            states = statesOf(arrival.topics[place])
            if states:
                part = arrival.only(place)
                for state in states:
                    for lane, offsets in self._lanesOf(state, part):
                        mine.setdefault(lane.key, (lane, []))[1].append(offsets)
        for state, parts in mine.values():
            age = arrival.time if self._expires(state.topic) else None
            state.arrive(parts[0] if len(parts) == 1 else list(merge(*parts)), age, arrival.expiries)

    def _expires(self, name: str) -> bool:
        """Return whether the messages of a queue expire by their age."""
        definition = self._sources.definitions.get(name)
        isDefined = definition is not None and definition.message_ttl is not None
        return isDefined or self._timesToLive.of(name) is not None

    def _lanesOf(self, state: QueueState, arrival: Arrival) -> Iterator[tuple[QueueState, Sequence[int]]]:
        """Yield the states of the lanes that records belong to, each with their offsets; a lane is made if need be."""
        if state.isSubscription:
            yield state, arrival.tracked()
        elif arrival.priorities is None or not self._sources.hasLanes(state):
            yield state, arrival.offsets
        else:
            for priority, part in arrival.byPriority():
                lane = state
                if priority != PRIORITY:
                    key = laneKey(state.topic, priority)
                    fresh = QueueState(key, state.topic, state.qos, 0, None, state.seen)
                    lane = self._states.setdefault(key, fresh)
                yield lane, part.offsets


def assumeDelivered(
    states: Iterable[QueueState], now: int, ofOne: int = _MAX_ASSUMED, inAll: int = _MAX_ASSUMED_IN_ALL
) -> None:
    """Mark messages, of the queues used last first, that a consumer may have received before a crash and may
    acknowledge.
    """
    left = inAll
    for state in sorted(states, key=lambda state: state.used or now, reverse=True):
        if left <= 0:
            return
        left -= state.assumeDelivered(min(left, ofOne))
