"""Drops the messages of one queue that are too old: in slices, one for each turn, and before a publication is refused.

A queue may have a million of them. Their number is known at once, but not their bytes, since the backlog adds up no
costs: so a full queue drops as many as it takes to admit a publication. Each message is dropped once.
"""

from collections.abc import Callable, Sequence

from fleximq.broker.deadlines import Deadline, Deadlines
from fleximq.broker.envelope import LastDelivery
from fleximq.broker.queues.in_flight import SLICE
from fleximq.broker.queues.message_ages import MessageAges
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL
from fleximq.broker.queues.stored_messages import StoredMessages
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.death_reason import DeathReason
from fleximq.values.message_cost import cost

#: Counted for messages that are too old.
EXPIRED = CountedEvent(EventFamily.EXPIRED, "time to live")
#: Minimum seconds between two searches for expired messages, except when the queue is full or a consumer takes some.
_SEARCHES = 1.0


class Expiry:
    """The ages of one queue's messages, and the deadline at which it drops those that are too old.

    :param timeToLive: seconds after which a waiting message expires.
    :param prepared: called after the last slice.
    :param bury: makes dead letters of expired messages; None while they are dropped.
    """

    __slots__ = ("_deadline", "_deadlines", "_isSoon", "_prepared", "_stored", "ages", "bury", "timeToLive")

    def __init__(
        self, timeToLive: float, deadlines: Deadlines, stored: StoredMessages, prepared: Callable[[], None]
    ) -> None:
        self.bury: Callable[[Sequence[LastDelivery]], object] | None = None
        self.timeToLive = timeToLive
        self.ages = MessageAges(timeToLive)
        self._deadlines = deadlines
        self._stored = stored
        self._prepared = prepared
        self._deadline: Deadline | None = None
        self._isSoon = False

    def arrived(self) -> None:
        """Record that all messages in the queue have arrived by now."""
        self.ages.add(self._stored.arrived, self._deadlines.seconds())
        self.watch()

    def watch(self) -> None:
        """Set the deadline for the messages that expire next, unless it is set."""
        if self._deadline is None and self.ages:
            left = self.ages.firstEnd() - self._deadlines.seconds()
            self._deadline = self._deadlines.callLater(max(_SEARCHES, left), self._due)

    @property
    def isNextTooOld(self) -> bool:
        """Whether the next message has expired."""
        oldest = self._stored.oldest
        return oldest is not None and oldest <= self._until()

    def expire(self, few: int = 0) -> None:
        """Drop a slice and ``few`` more, or only these if slices are dropped already; the others in later turns."""
        if self.isNextTooOld:
            self._drop(few if self._isSoon else SLICE + few)
            if self.isNextTooOld:
                self.soon()

    def makeRoom(self, isFull: Callable[[], bool], few: int) -> None:
        """Drop a slice and ``few`` more, and then as many as it takes until the queue is not full."""
        self.expire(few)
        while isFull() and self.isNextTooOld:
            self._drop(SLICE)

    def soon(self) -> None:
        """Drop a slice in the next turn, and the others in the turns after it."""
        if not self._isSoon:
            self.cancel()
            self._isSoon = True
            self._deadline = self._deadlines.callLater(0, self._due)

    def cancel(self) -> None:
        """Cancel the deadline."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self._isSoon = False

    def _until(self) -> int:
        return self.ages.before(self._deadlines.seconds())

    def _drop(self, most: int) -> None:
        if self.bury is not None:
            self._buryOldest(self.bury, most)
            return
        stored, until, expired = self._stored, self._until(), 0
        while expired < most and (delivery := stored.returned.first()) is not None and delivery.tag <= until:
            stored.dropReturned(delivery)
            expired += 1
        if expired < most and stored.lastTag < until:
            dropped = stored.backlog.expire(until, most - expired)
            stored.undelivered(dropped)
            expired += dropped.number
        if expired:
            stored.counted(EXPIRED, expired)

    def _buryOldest(self, bury: Callable[[Sequence[LastDelivery]], object], most: int) -> None:
        """As :meth:`_drop`, but make dead letters."""
        stored, until = self._stored, self._until()
        dead: list[LastDelivery] = []
        while len(dead) < most and (delivery := stored.returned.first()) is not None and delivery.tag <= until:
            stored.returned.remove(delivery.tag)
            stored.ended([delivery.tag])
            dead.append(LastDelivery(*delivery, DeathReason.EXPIRED))
        end = min(until, stored.lastTag + most - len(dead))
        for tag in range(stored.lastTag + 1, end + 1):
            message = stored.backlog.remove(tag)
            if message is not None:
                dead.append(LastDelivery(tag, message, 0, DeathReason.EXPIRED))
        gaps = stored.backlog.expire(end, most)  # and volatile messages of a durable queue
        stored.undelivered(gaps)
        stored.size -= cost(
            [each.message for each in dead if each.message.payload is not ONLY_IN_JOURNAL or each.attempts]
        )
        if dead or gaps.number:
            stored.counted(EXPIRED, len(dead) + gaps.number)
            bury(dead)

    def _due(self) -> None:
        self._deadline = None
        self._isSoon = False
        self._drop(SLICE)
        if self.isNextTooOld:
            self.soon()
        else:
            self._prepared()
            self.watch()
