"""The state of one durable queue as a checkpoint stores it: its offsets, its deliveries, and its owner.

Records and state records after the checkpoint are applied to it, perhaps again to a state that includes them already,
and an acknowledgement may precede the record of its delivery.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fleximq.broker.queues.offset_ranges import GAP, OffsetRanges
from fleximq.values.state_records import QueueDelivered, QueueMoved, QueueOpened

#: The expiries of a batch in which no message has one of its own.
NO_EXPIRIES: Mapping[int, int] = {}
#: Fields that a checkpoint stores as they are.
_UNCHANGED = ("key", "topic", "qos", "id", "owner", "seen", "used", "consumed")


@dataclass(slots=True)
class QueueState:
    """One queue as the journal knows it. Times are microseconds since 1970.

    ``lastTag`` is the arrival number of the latest message that was delivered, or dropped before that; ``onDisk`` has
    the offsets of all later ones. ``handed`` maps the offsets of unacknowledged messages that have left the backlog to
    their tags; ``attempts`` maps a tag to its number of deliveries: a tag not listed was delivered once; 0: it is
    parked, or its delivery is assumed after a crash. ``due`` maps a tag to the time until which its message is hidden;
    ``delayed`` are the tags with a deadline of their own. ``gone`` are the offsets that were acknowledged before the
    record of their delivery arrived. Records from the offset ``seen`` on have not arrived yet. ``ages`` are tags and
    the times when they were the latest to arrive; ``expiries`` are times at which messages expire, and the first and
    last of their tags. ``used`` is the time of the last use, 0 for now; ``consumed``: a consumer has used the queue.
    """

    key: str
    topic: str
    qos: int
    id: int
    owner: str | None
    seen: int
    lastTag: int = 0
    onDisk: OffsetRanges = field(default_factory=OffsetRanges)
    handed: dict[int, int] = field(default_factory=dict)
    attempts: dict[int, int] = field(default_factory=dict)
    due: dict[int, int] = field(default_factory=dict)
    delayed: set[int] = field(default_factory=set)
    ages: deque[tuple[int, int]] = field(default_factory=deque)
    expiries: list[tuple[int, int, int]] = field(default_factory=list)
    used: int = 0
    consumed: bool = False
    gone: set[int] = field(default_factory=set)

    @classmethod
    def opened(cls, note: QueueOpened) -> "QueueState":
        """Return the state of a queue that was just opened."""
        return cls(note.key, note.topic, note.qos, note.id, note.owner, note.offset)

    @property
    def isSubscription(self) -> bool:
        """Whether this is a subscription's queue, which accepts only messages of QoS1."""
        return self.key.startswith("s:")

    @property
    def isFirst(self) -> bool:
        """Whether this is not a further lane of a work queue."""
        return self.key[1:2] == ":"

    def arrive(
        self, offsets: Sequence[int], time: int | None = None, expiries: Mapping[int, int] = NO_EXPIRIES
    ) -> None:
        """Add publications at these ascending offsets; ``time`` is that of the last one, if messages expire.

        :param expiries: the times at which single messages expire, by offset.
        """
        if not len(offsets) or offsets[-1] < self.seen:
            return
        if offsets[0] < self.seen:
            offsets = offsets[bisect_left(offsets, self.seen) :]
        self.seen = offsets[-1] + 1
        if expiries:
            self._expire(offsets, expiries)
        self.onDisk.extend(offsets)
        if time is not None:
            self.ages.append((self.lastTag + len(self.onDisk), time))

    def _expire(self, offsets: Sequence[int], expiries: Mapping[int, int]) -> None:
        for tag, offset in enumerate(offsets, self.lastTag + len(self.onDisk) + 1):
            time = expiries.get(offset)
            if time is None:
                continue
            if self.expiries and self.expiries[-1][0] == time and self.expiries[-1][2] == tag - 1:
                self.expiries[-1] = time, self.expiries[-1][1], tag
            else:
                self.expiries.append((time, tag, tag))

    def forgetFrom(self, offset: int) -> None:
        """Forget the publications from this offset on, none of which was delivered: the queue's sources changed."""
        if offset >= self.seen:
            return
        onDisk, self.onDisk = self.onDisk, OffsetRanges()
        for part in onDisk.parts():
            self.onDisk.extend([each for each in part if each < offset])
        self.seen = offset
        last = self.lastTag + len(self.onDisk)
        while self.ages and self.ages[-1][0] > last:
            self.ages.pop()
        self.expiries = [(time, first, min(end, last)) for time, first, end in self.expiries if first <= last]

    def handedOut(self, note: QueueDelivered) -> None:
        """Apply a record of deliveries."""
        if note.time:  # otherwise they were dropped
            self.used = 0
            self.consumed = True
        # Messages of a subscription are not hidden after a restart, which ends all connections.
        time = 0 if self.isSubscription else note.time
        if note.count > self.lastTag:
            offsets = self.onDisk.take(note.count - self.lastTag)
            tags: Sequence[int] = range(self.lastTag + 1, self.lastTag + 1 + len(offsets))
            if self.gone or GAP in offsets:
                pairs = [pair for pair in zip(offsets, tags, strict=True) if not self._isGone(pair[0])]
                self.handed.update(pairs)
                tags = [tag for _, tag in pairs]
            else:
                self.handed.update(zip(offsets, tags, strict=True))
            if time:
                self.due.update(dict.fromkeys(tags, time))
            self.lastTag += len(offsets)
        for offset in note.again:
            tag = self.handed.get(offset)
            if tag is not None:
                self.attempts[tag] = self.attempts.get(tag, 1) + 1
                self.delayed.discard(tag)
                if time:
                    self.due[tag] = time

    def moved(self, note: QueueMoved) -> None:
        """Apply a record of messages that were parked or delayed."""
        for offset in note.offsets:
            tag = self.handed.get(offset)
            if tag is None:
                continue
            known = self.attempts.get(tag, 1)
            if note.attempts > known or (note.attempts == 0 and known == 1):  # else it is older than the state
                self.attempts[tag] = note.attempts
            if note.time:
                self.due[tag] = note.time
                self.delayed.add(tag)
            else:
                self.due.pop(tag, None)
                self.delayed.discard(tag)

    def _isGone(self, offset: int) -> bool:
        if offset in self.gone:
            self.gone.discard(offset)
            return True
        return offset == GAP

    def acknowledged(self, offsets: Sequence[int]) -> None:
        """Apply a record of acknowledgements."""
        self.used = 0
        pop, attempts, due = self.handed.pop, self.attempts, self.due
        if self.onDisk:
            # Earlier offsets were delivered long ago and are acknowledged twice.
            first = self.onDisk.first or 1
            unknown = [offset for offset in offsets if offset not in self.handed and first <= offset < self.seen]
            self.gone.update(unknown)
        for offset in offsets:
            tag = pop(offset, None)
            if tag is not None and (attempts or due):
                attempts.pop(tag, None)
                due.pop(tag, None)
                self.delayed.discard(tag)

    def markGaps(self) -> None:
        """Replace acknowledged messages by gaps, if no record says that they were delivered."""
        if self.gone:
            self.onDisk = self.onDisk.without(self.gone)
            self.gone = set()

    def assumeDelivered(self, most: int) -> int:
        """Assume that up to ``most`` next messages were delivered (0 times) and returned, and return how many: a crash
        loses the last records, but clients may acknowledge these.
        """
        offsets = self.onDisk.take(most)
        first = self.lastTag + 1
        self.lastTag += len(offsets)
        for tag, offset in enumerate(offsets, first):
            if offset != GAP:
                self.handed[offset] = tag
                self.attempts[tag] = 0
        return len(offsets)

    def dump(self) -> dict[str, Any]:
        """Return the state as MessagePack values."""
        tags = array("Q", self.handed.values())
        return {
            **{name: getattr(self, name) for name in _UNCHANGED},
            "tag": self.lastTag,
            "far": self.onDisk.dump(),  # the name that the file format has
            "offsets": array("Q", self.handed).tobytes(),
            "tags": tags.tobytes(),
            "attempts": [list(self.attempts), list(self.attempts.values())],
            "due": array("q", [self.due.get(tag, 0) for tag in tags]).tobytes() if self.due else b"",
            "delayed": sorted(self.delayed),
            "ages": [list(age) for age in self.ages],
            "expiries": [list(each) for each in self.expiries],
        }

    @classmethod
    def load(cls, dumped: Mapping[str, Any]) -> "QueueState":
        """Return the state from a :meth:`dump`."""
        offsets, tags, due = array("Q"), array("Q"), array("q")
        offsets.frombytes(dumped["offsets"])
        tags.frombytes(dumped["tags"])
        due.frombytes(dumped["due"])
        return cls(
            **{name: dumped[name] for name in _UNCHANGED},
            lastTag=dumped["tag"],
            onDisk=OffsetRanges.load(dumped["far"]),
            handed=dict(zip(offsets, tags, strict=True)),
            attempts=dict(zip(*dumped["attempts"], strict=True)),
            due=dict(zip(tags, due, strict=True)) if due else {},
            delayed=set(dumped.get("delayed", ())),  # not in the snapshots of older versions
            ages=deque((tag, time) for tag, time in dumped["ages"]),
            expiries=[(time, first, last) for time, first, last in dumped.get("expiries", ())],
        )
