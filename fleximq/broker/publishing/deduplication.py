"""Messages with ids of their own: published once, however often a publisher that knows no better sends them.

Which ids were there is kept by :mod:`fleximq.broker.publishing.deduplication`; here is decided what of a run is
published, and the
publisher is told of repeats as of the rest.

Which messages were published lately, by their ids, so that a repeated publication is stored once.

A publisher that lost its connection cannot know what became of its last messages and sends them again. Those that
have an id and are for a durable topic are stored again only if the first was refused, or is longer ago than the window.
A repeat that comes while the first is on its way to the disk waits for the same commit, and is refused with it.

What is remembered is bounded: beyond :data:`MAX_IDS` or :data:`MAX_BYTES` the oldest ids are forgotten before their
time, which is counted. An id costs 3 us.
"""

from array import array
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from fleximq.broker.envelope import Envelope, OnDecided
from fleximq.broker.publishing.fan_out import FanOut
from fleximq.broker.publishing.slow_path import SlowPath
from fleximq.broker.rules import BrokerRules
from fleximq.errors import BrokerError, NotKept
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.records import DIALECTS, StoredBatch, idsOf

MAX_IDS = 1_000_000
MAX_BYTES = 64 << 20
#: What an id takes besides its letters (measured on CPython 3.11).
ENTRY_BYTES = 224
#: What is counted when ids are forgotten because there are too many.
FORGOTTEN = "ids forgotten early"
#: What is counted when a repeat is not stored again.
REPEATED = CountedEvent(EventFamily.REPEATED)

Key = tuple[str, str]


class PublicationKeys:
    """One run's ids, from the moment they are seen until the run is committed or refused.

    ``places`` are those of the messages that are new, ``number`` is the run's in the journal.
    """

    __slots__ = ("_waiting", "ids", "number", "places", "time", "topic")

    def __init__(self, topic: str, ids: Sequence[str], time: int) -> None:
        self.topic = topic
        self.ids = ids
        self.time = time
        self.number = 0
        self.places: list[int] = []
        self._waiting: dict[str, list[tuple[OnDecided, int]]] = {}

    def wait(self, id: str, kept: OnDecided | None, place: int) -> None:
        """Tell what becomes of a message to somebody who repeats it, in a run of his own at this place."""
        if kept is not None:
            self._waiting.setdefault(id, []).append((kept, place))

    def tell(self, id: str, reason: str | None) -> None:
        """Tell it to all who wait for it."""
        for kept, place in self._waiting.pop(id, ()):
            kept(reason, (place,))


class RecentIds:
    """The ids of the window.

    :param window: microseconds for which an id is remembered.
    :param now: returns the microseconds since 1970.
    :param dialects: codes of the dialects whose records are learnt from the journal, see :mod:`fleximq.values.records`.
    :param counted: is told what is worth counting.
    """

    def __init__(
        self,
        window: int,
        now: Callable[[], int],
        dialects: Collection[int],
        counted: Callable[[str, int], None],
        mostIds: int = MAX_IDS,
        mostBytes: int = MAX_BYTES,
    ) -> None:
        self._window = window
        self._now = now
        self._dialects = frozenset(dialects)
        self._counted = counted
        self._mostIds = mostIds
        self._mostBytes = mostBytes
        self._entries: dict[Key, int | PublicationKeys] = {}
        self._order: deque[Key] = deque()
        self._size = 0

    def __len__(self) -> int:
        """Return how many ids are remembered."""
        return len(self._entries)

    def claim(self, topic: str, ids: Sequence[str], kept: OnDecided | None) -> tuple[PublicationKeys, int]:
        """Take hold of those of a run's ids that are new; return the claim, and the last run that repeats wait for.

        :param kept: told of repeats of what is not decided yet, when it is.
        """
        now = self._now()
        self._expire(now - self._window)
        claim = PublicationKeys(topic, ids, now)
        entries = self._entries
        number = 0
        for place, id in enumerate(ids):
            found = entries.get((topic, id))
            if found is None:
                claim.places.append(place)
                self._add((topic, id), claim)
            elif isinstance(found, PublicationKeys):
                found.wait(id, kept, place)
                number = max(number, found.number)
        if len(claim.places) < len(ids):
            self._counted(REPEATED, len(ids) - len(claim.places))
        return claim, number

    def committed(self, claim: PublicationKeys) -> None:
        """Remember a run that was stored."""
        for place in claim.places:
            key = claim.topic, claim.ids[place]
            if self._entries.get(key) is claim:
                self._entries[key] = claim.time
            claim.tell(key[1], None)

    def refused(self, claim: PublicationKeys, places: Sequence[int], reason: str) -> None:
        """Let messages of these places be stored when they come again."""
        for place in reversed(places):
            key = claim.topic, claim.ids[place]
            if self._entries.get(key) is claim:
                self._remove(key)
                if self._order and self._order[-1] == key:
                    self._order.pop()
        gone = set(places)
        claim.places = [place for place in claim.places if place not in gone]
        for place in places:
            claim.tell(claim.ids[place], reason)

    def remember(self, topic: str, id: str, time: int) -> None:
        """Know a message that was stored at this time (microseconds since 1970); they come in the order of times."""
        key = topic, id
        if time < self._now() - self._window:
            return
        if key in self._entries:
            self._entries[key] = time
        else:
            self._add(key, time)

    def snapshot(self) -> dict[str, Any]:
        """Return what is remembered, of what is stored already, as values that MessagePack has."""
        self._expire(self._now() - self._window)
        found: dict[str, tuple[list[str], array[int]]] = {}
        entries = self._entries
        for key in self._order:
            time = entries.get(key)
            if isinstance(time, int):
                ids, times = found.setdefault(key[0], ([], array("q")))
                ids.append(key[1])
                times.append(time)
        return {topic: [ids, times.tolist()] for topic, (ids, times) in found.items()}

    def restore(self, snapshot: Mapping[str, Any]) -> None:
        """Know what :meth:`snapshot` returned."""
        known = [
            (time, topic, id) for topic, (ids, times) in snapshot.items() for id, time in zip(ids, times, strict=True)
        ]
        for time, topic, id in sorted(known):
            self.remember(topic, id, time)

    def restored(self, batch: StoredBatch) -> None:
        """Know the ids of what stands in the journal."""
        since = self._now() - self._window
        if not len(batch) or batch.timestamps[-1] < since or self._dialects.isdisjoint(batch.dialects):
            return
        for place, header in enumerate(batch.headers):
            if header and batch.timestamps[place] >= since and batch.dialects[place] in self._dialects:
                id = idsOf(header)[0]
                if id is not None:
                    self.remember(batch.topics[batch.topicOf[place]], id, batch.timestamps[place])

    def _add(self, key: Key, entry: int | PublicationKeys) -> None:
        self._entries[key] = entry
        self._order.append(key)
        self._size += ENTRY_BYTES + len(key[1])
        while len(self._entries) > self._mostIds or self._size > self._mostBytes:
            self._remove(self._order.popleft(), FORGOTTEN)

    def _remove(self, key: Key, event: str = "") -> None:
        if self._entries.pop(key, None) is not None:
            self._size -= ENTRY_BYTES + len(key[1])
            if event:
                self._counted(event, 1)

    def _expire(self, until: int) -> None:
        """Forget what is older; keys of what was refused may still stand in the order."""
        order, entries = self._order, self._entries
        while order:
            entry = entries.get(order[0])
            if isinstance(entry, PublicationKeys) or (entry is not None and entry >= until):
                return
            self._remove(order.popleft())


#: Brings a run on its way, as :meth:`fleximq.broker.broker.Broker.publish` does.
Deliver = Callable[[Envelope, Any, int, OnDecided | None], None]


def recentIdsOf(rules: BrokerRules, seconds: Callable[[], float], counted: Callable[[str, int], None]) -> RecentIds:
    """Return the memory for ids that these rules ask for; ``seconds`` are those since 1970."""
    return RecentIds(
        round(rules.idempotenceWindow * 1_000_000),
        lambda: round(seconds() * 1_000_000),
        [DIALECTS[name] for name in rules.deduplicatedDialects],
        counted,
    )


class Deduplication:
    """Leaves out of runs what was published lately.

    :param active: False: nothing is left out.
    """

    def __init__(self, active: bool, idempotence: RecentIds, delivering: FanOut, publishing: SlowPath) -> None:
        self._active = active
        self._idempotence = idempotence
        self._delivering = delivering
        self._publishing = publishing

    def publish(
        self, envelope: Envelope, body: Any, ids: Sequence[str], kept: OnDecided | None, bring: Deliver
    ) -> None:
        """Let ``bring`` have those messages of a run that are no repeats.

        :param ids: one for each message.
        :param kept: told of repeats when what they repeat is decided, and of the others as ``bring`` is told to.
        :raises NotKept: as ``bring`` does; ``refused`` are places in the whole run.
        """
        envelope = self._delivering.present(envelope)
        if not (self._active and envelope.topic.durable and self._publishing.isRecorded(envelope)):
            bring(envelope, body, len(ids), kept)
            return
        publisher = envelope.publisher
        claim, number = self._idempotence.claim(envelope.topic.name, ids, kept)
        publisher.lastRun = max(publisher.lastRun, number)
        places = claim.places
        if not places:
            return
        if len(places) < len(ids):
            body = envelope.source.pick(body, places)
        try:
            bring(envelope, body, len(places), partial(self._decided, claim, places, kept))
        except NotKept as error:
            refused = [places[place] for place in error.refused]
            self._idempotence.refused(claim, refused, error.reason)
            raise type(error)(error.reason, refused) from error
        except BrokerError as error:
            self._idempotence.refused(claim, places, str(error))
            raise
        finally:
            claim.number = publisher.lastRun

    def _decided(
        self,
        claim: PublicationKeys,
        places: Sequence[int],
        kept: OnDecided | None,
        reason: str | None,
        decided: Sequence[int],
    ) -> None:
        """The journal's word on claimed messages, whose places are those among the ones that were not repeats."""
        if kept is not None:
            kept(reason, [places[place] for place in decided])
        if reason is None:
            self._idempotence.committed(claim)
        else:
            self._idempotence.refused(claim, list(claim.places), reason)
