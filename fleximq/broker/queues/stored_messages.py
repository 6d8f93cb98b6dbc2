"""The messages of one queue, wherever they are: never delivered, in flight, returned, or parked; and their cost."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.backlog import Backlog, Dropped
from fleximq.broker.queues.in_flight import IN_FLIGHT_OVERHEAD, InFlight
from fleximq.broker.queues.key_order import KeyOrder
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL
from fleximq.broker.queues.recorder import Recorder
from fleximq.broker.queues.returned import Returned
from fleximq.values import message_loops
from fleximq.values.message import Message
from fleximq.values.message_cost import costOf


@dataclass(slots=True, eq=False, repr=False)
class StoredMessages:
    """All messages of a queue; ``size`` is the cost in bytes of those in memory.

    :param counted: called with a counted event and a number.
    :param moved: called with each delivery that ends without acknowledgement, and with False if it waits again or is a
        dead letter that can be withdrawn, True if it was dropped. Not called when the queue is closed.
    :param order: the order of keys, with the parked messages; None in a queue without it.
    """

    backlog: Backlog
    recorder: Recorder | None
    flying: InFlight
    counted: Callable[[str, int], None]
    moved: Callable[[QueueDelivery, bool], None]
    returned: Returned = field(default_factory=Returned)
    order: KeyOrder | None = None
    size: int = 0

    @property
    def depth(self) -> int:
        """The number of messages that wait, except those delayed for a retry."""
        parked = 0 if self.order is None else len(self.order)
        return len(self.returned) + parked + len(self.backlog) - self.backlog.gaps

    @property
    def all(self) -> int:
        """The number of all messages, including those that wait for the storage of their dead letters."""
        return self.depth + len(self.flying) + (0 if self.recorder is None else self.recorder.dying)

    @property
    def weight(self) -> int:
        """The cost of all messages in memory, and :data:`IN_FLIGHT_OVERHEAD` for each one in flight."""
        return self.size + IN_FLIGHT_OVERHEAD * len(self.flying)

    @property
    def lastTag(self) -> int:
        """The tag of the latest message that was delivered for the first time or dropped, 0 before it."""
        return self.backlog.lastTag

    @property
    def arrived(self) -> int:
        """The tag of the latest message: how many have arrived, except those that were too large for a full queue."""
        return self.backlog.lastTag + len(self.backlog)

    @property
    def oldest(self) -> int | None:
        """The arrival number of the oldest waiting message; None if the queue is empty."""
        returned = self.returned.first()
        if returned is not None:
            return returned.tag
        return self.backlog.lastTag + 1 if len(self.backlog) else None

    @property
    def isNextOnDisk(self) -> bool:
        """Whether the next message must be read from the journal, or the keys of others first."""
        if self.order is not None and self.order.unread:
            return True
        delivery = self.returned.first() if self.returned else None
        if delivery is not None:
            return delivery.message.payload is ONLY_IN_JOURNAL
        return not self.backlog.available and len(self.backlog) > 0

    def first(self, number: int) -> list[tuple[Message, int]]:
        """Return up to ``number`` of the oldest waiting messages, up to one that is only on disk, with their deliveries
        so far; they stay in the queue.
        """
        found: list[tuple[Message, int]] = []
        for delivery in self.returned.firsts(number):
            if delivery.message.payload is ONLY_IN_JOURNAL:
                return found
            found.append((delivery.message, delivery.attempts))
        for delivery in islice(self.order or (), number - len(found)):
            if delivery.message.payload is ONLY_IN_JOURNAL:
                return found
            found.append((delivery.message, delivery.attempts))
        return found + [(message, 0) for message in islice(self.backlog, number - len(found))]

    def delivered(self) -> list[QueueDelivery]:
        """Return the unacknowledged messages that have left the backlog: in flight, returned or parked."""
        return [*self.flying.deliveries(), *self.returned.values(), *(self.order or ())]

    def waitingAgain(self) -> list[QueueDelivery]:
        """Return the messages that wait after a delivery: returned, parked or delayed for a retry."""
        return [*self.returned.values(), *(self.order or ()), *self.flying.delayedOnes()]

    def undelivered(self, dropped: Dropped) -> None:
        """Account for messages that left the backlog undelivered."""
        self.size -= dropped.size
        if self.recorder is not None:
            self.recorder.gone(dropped.offsets)

    def dropReturned(self, delivery: QueueDelivery) -> None:
        """Drop a delivery that returned."""
        self.returned.remove(delivery.tag)
        self.ended([delivery.tag])
        self.size -= costOf(delivery.message)
        self.moved(delivery, True)
        if self.recorder is not None:
            self.recorder.gone(message_loops.offsetsOf([delivery.message]))

    def ended(self, tags: Iterable[int]) -> bool:
        """Record that messages which were delivered have left for good; tell whether parked ones return."""
        if self.order is None:
            return False
        following = [delivery for tag in tags if (delivery := self.order.ended(tag)) is not None]
        self.returned.add(following)
        return bool(following)

    def unpark(self) -> None:
        """Let parked messages return, to be taken without regard to their keys, or to be parked again."""
        if self.order:
            parked = [*self.order]
            for delivery in parked:
                self.order.remove(delivery.tag)
            self.returned.add(parked)

    def removeWaiting(self, tag: int) -> QueueDelivery | None:
        """Remove a message that waits after a delivery, returned or parked; None if it does not."""
        delivery = self.returned.remove(tag)
        return self.order.remove(tag) if delivery is None and self.order is not None else delivery

    def clear(self) -> None:
        """Forget all messages."""
        if self.order is not None:
            self.order.clear()
        self.backlog.clear()
        self.returned.clear()
        self.flying.clear()
        self.size = 0
