"""Deduplication: messages with ids are stored once, even if a publisher repeats them after it lost its connection.

A repeat is a message for a durable topic with an id that was published there within the window. It is stored only if
the first message was refused. A repeat that arrives while the first message is being committed waits for the same
commit, and is confirmed or refused with it; later repeats are confirmed at once. A message that waits for its time is
published, in this sense, when it is scheduled. Beyond :data:`MAX_IDS` or :data:`MAX_BYTES` the oldest ids are forgotten
before the end of the window, and counted. An id costs 3 us.
"""

from array import array
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fleximq.broker.envelope import Envelope, OnDecided
from fleximq.broker.publishing.publication_paths import FanOut, OrderedPath
from fleximq.broker.rules import BrokerRules
from fleximq.errors import BrokerError, NotKept
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.records import DIALECTS, SCHEDULED, StoredBatch, idsOf

MAX_IDS = 1_000_000
MAX_BYTES = 64 << 20
#: Bytes of memory for an id in addition to its characters (measured on CPython 3.11).
ENTRY_BYTES = 224
#: Counted when ids are forgotten before their time.
FORGOTTEN = "ids forgotten early"
#: Counted when a repeat is not stored again.
REPEATED = CountedEvent(EventFamily.REPEATED)

Key = tuple[str, str]


@dataclass(slots=True, eq=False, repr=False)
class PublicationKeys:
    """The new ids of one run, until the run is committed or refused.

    ``ids`` has the id of each message of the run, ``places`` the indexes of the messages with new ids. ``time`` is when
    they were published, in microseconds of the monotonic clock. ``number`` is the run's number in the journal.
    """

    topic: str
    ids: Sequence[str]
    time: int
    number: int = 0
    places: list[int] = field(default_factory=list)
    _waiting: dict[str, list[tuple[OnDecided, int]]] = field(default_factory=dict)

    def wait(self, messageId: str, onDecided: OnDecided | None, place: int) -> None:
        """Call ``onDecided`` of a repeat with the decision on the message with this id.

        :param place: the index of the repeat in its own run.
        """
        if onDecided is not None:
            self._waiting.setdefault(messageId, []).append((onDecided, place))

    def report(self, messageId: str, reason: str | None) -> None:
        """Report the decision on a message to the publishers of its repeats; ``reason`` is None if it was committed."""
        for onDecided, place in self._waiting.pop(messageId, ()):
            onDecided(reason, (place,))


@dataclass(eq=False, repr=False)
class RecentIds:
    """The ids published within the window.

    :param window: microseconds for which an id is remembered.
    :param now: returns the microseconds of a monotonic clock, by which the window is measured.
    :param wall: returns the microseconds since 1970, for the times in the journal.
    :param dialects: codes of the dialects whose records in the journal have ids, see :mod:`fleximq.values.records`.
    """

    _window: int
    _now: Callable[[], int]
    _wall: Callable[[], int]
    _dialects: frozenset[int]
    _counted: Callable[[str, int], None]
    mostIds: int = MAX_IDS
    mostBytes: int = MAX_BYTES
    _entries: dict[Key, "int | PublicationKeys"] = field(default_factory=dict)
    _order: deque[Key] = field(default_factory=deque)
    _size: int = 0

    def __len__(self) -> int:
        return len(self._entries)

    def register(self, topic: str, ids: Sequence[str], onDecided: OnDecided | None) -> tuple[PublicationKeys, int]:
        """Register the new ids of a run, and return them.

        The second result is the journal's number of the last pending run with one of the repeated ids, 0 without one.

        :param onDecided: called with the decisions on repeats of pending messages.
        """
        now = self._now()
        self._expire(now - self._window)
        keys = PublicationKeys(topic, ids, now)
        entries = self._entries
        number = 0
        for place, messageId in enumerate(ids):
            found = entries.get((topic, messageId))
            if found is None:
                keys.places.append(place)
                self._add((topic, messageId), keys)
            elif isinstance(found, PublicationKeys):
                found.wait(messageId, onDecided, place)
                number = max(number, found.number)
        if len(keys.places) < len(ids):
            self._counted(REPEATED, len(ids) - len(keys.places))
        return keys, number

    def committed(self, keys: PublicationKeys) -> None:
        """Remember the ids of a stored run."""
        for place in keys.places:
            key = keys.topic, keys.ids[place]
            if self._entries.get(key) is keys:
                self._entries[key] = keys.time
            keys.report(key[1], None)

    def refused(self, keys: PublicationKeys, places: Sequence[int], reason: str) -> None:
        """Forget the ids of refused messages, so that repeats of them are stored."""
        for place in reversed(places):
            key = keys.topic, keys.ids[place]
            if self._entries.get(key) is keys:
                self._remove(key)
                if self._order and self._order[-1] == key:
                    self._order.pop()
        gone = set(places)
        keys.places = [place for place in keys.places if place not in gone]
        for place in places:
            keys.report(keys.ids[place], reason)

    def remember(self, topic: str, messageId: str, time: int) -> None:
        """Add the id of a message that was stored at this time, in microseconds since 1970; times must ascend."""
        now = self._now()
        time = min(now, time + now - self._wall())
        key = topic, messageId
        if time < now - self._window:
            return
        if key in self._entries:
            self._entries[key] = time
        else:
            self._add(key, time)

    def snapshot(self) -> dict[str, Any]:
        """Return the ids of stored messages as MessagePack values."""
        now = self._now()
        self._expire(now - self._window)
        ahead = self._wall() - now
        found: dict[str, tuple[list[str], array[int]]] = {}
        entries = self._entries
        for key in self._order:
            time = entries.get(key)
            if isinstance(time, int):
                ids, times = found.setdefault(key[0], ([], array("q")))
                ids.append(key[1])
                times.append(time + ahead)
        return {topic: [ids, times.tolist()] for topic, (ids, times) in found.items()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Add the ids of a :meth:`snapshot`."""
        known = [
            (time, topic, messageId)
            for topic, (ids, times) in snapshot.items()
            for messageId, time in zip(ids, times, strict=True)
        ]
        for time, topic, messageId in sorted(known):
            self.remember(topic, messageId, time)

    def learn(self, batch: StoredBatch, publishedTo: Callable[[str, bytes], str] = lambda topic, header: topic) -> None:
        """Add the ids of records read from the journal.

        :param publishedTo: returns the topic for which a record with this topic and header was published.
        """
        since = self._wall() - self._window
        if not len(batch) or batch.timestamps[-1] < since or self._dialects.isdisjoint(batch.dialects):
            return
        for place, header in enumerate(batch.headers):
            if header and batch.timestamps[place] >= since and batch.dialects[place] in self._dialects:
                messageId = idsOf(header)[0]
                if messageId is not None and not batch.contents[place] & SCHEDULED:  # its waiting record has it
                    topic = publishedTo(batch.topics[batch.topicOf[place]], header)
                    self.remember(topic, messageId, batch.timestamps[place])

    def _add(self, key: Key, entry: int | PublicationKeys) -> None:
        self._entries[key] = entry
        self._order.append(key)
        self._size += ENTRY_BYTES + len(key[1])
        while len(self._entries) > self.mostIds or self._size > self.mostBytes:
            self._remove(self._order.popleft(), FORGOTTEN)

    def _remove(self, key: Key, event: str = "") -> None:
        if self._entries.pop(key, None) is not None:
            self._size -= ENTRY_BYTES + len(key[1])
            if event:
                self._counted(event, 1)

    def _expire(self, until: int) -> None:
        """Forget ids published before ``until``. ``_order`` may contain keys of refused messages, which are skipped."""
        order, entries = self._order, self._entries
        while order:
            entry = entries.get(order[0])
            if isinstance(entry, PublicationKeys) or (entry is not None and entry >= until):
                return
            self._remove(order.popleft())


#: Publishes a run, as :meth:`fleximq.broker.broker.Broker.publish` does.
Publish = Callable[[Envelope, Any, int, OnDecided | None], None]


def recentIdsOf(
    rules: BrokerRules, seconds: Callable[[], float], wall: Callable[[], int], counted: Callable[[str, int], None]
) -> RecentIds:
    """Return the :class:`RecentIds` for these rules and clocks.

    :param seconds: the seconds of a monotonic clock.
    :param wall: the microseconds since 1970.
    """
    return RecentIds(
        round(rules.idempotenceWindow * 1_000_000),
        lambda: round(seconds() * 1_000_000),
        wall,
        frozenset(DIALECTS[name] for name in rules.deduplicatedDialects),
        counted,
    )


class Deduplication:
    """Removes repeated messages from runs, if ``active``."""

    def __init__(self, active: bool, idempotence: RecentIds, fanOut: FanOut, orderedPath: OrderedPath) -> None:
        self._active = active
        self._idempotence = idempotence
        self._fanOut = fanOut
        self._orderedPath = orderedPath

    def publish(
        self, envelope: Envelope, body: Any, ids: Sequence[str], onDecided: OnDecided | None, publish: Publish
    ) -> None:
        """Call ``publish`` with the messages of a run that are not repeats, if there are any.

        :param ids: the id of each message.
        :param onDecided: called with the decisions on all messages, by their indexes in this run.
        :raises NotKept: as ``publish`` does; ``refused`` has indexes in this run.
        """
        envelope = self._fanOut.present(envelope)
        if not (self._active and self._orderedPath.isRecorded(envelope)):
            publish(envelope, body, len(ids), onDecided)
            return
        publisher = envelope.publisher
        keys, number = self._idempotence.register(envelope.topic.name, ids, onDecided)
        publisher.lastRun = max(publisher.lastRun, number)
        places = keys.places
        if not places:
            return
        if len(places) < len(ids):
            body = envelope.source.pick(body, places)
        try:
            publish(envelope, body, len(places), partial(self._decided, keys, places, onDecided))
        except NotKept as error:
            refused = [places[place] for place in error.refused]
            self._idempotence.refused(keys, refused, error.reason)
            raise error.at(refused) from error
        except BrokerError as error:
            self._idempotence.refused(keys, places, str(error))
            raise
        finally:
            keys.number = publisher.lastRun

    def _decided(
        self,
        keys: PublicationKeys,
        places: Sequence[int],
        onDecided: OnDecided | None,
        reason: str | None,
        decided: Sequence[int],
    ) -> None:
        """Handle the journal's decision on new messages, and report it with their indexes in the original run."""
        if onDecided is not None:
            onDecided(reason, [places[place] for place in decided])
        if reason is None:
            self._idempotence.committed(keys)
        else:
            self._idempotence.refused(keys, list(keys.places), reason)
