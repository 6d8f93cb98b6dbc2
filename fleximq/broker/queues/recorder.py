"""The interface of recorders; a queue in memory has none."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from fleximq.broker.envelope import LastDelivery, QueueDelivery
from fleximq.broker.queues.queue_state import QueueState
from fleximq.values.message import Message


class Recorder(Protocol):
    """Writes the state of one durable queue to the journal, and reads its messages from there.

    ``key`` is the queue's key in the journal; ``restored`` the tag of the last message that the queue had at the start.
    """

    __slots__ = ()
    key: str
    restored: int

    @property
    def dying(self) -> int:
        """The number of last deliveries without stored dead letters."""

    def load(self) -> None:
        """Read the next messages if they are not in memory, unless a read is running."""

    def delivered(self, again: Sequence[QueueDelivery], seconds: float) -> None:
        """Record that messages were delivered, ``again`` for another time, and are hidden for so many seconds, 0: until
        their holder leaves.
        """

    def parked(self, deliveries: Sequence[QueueDelivery]) -> None:
        """Record that these left the backlog without a delivery; call it before :meth:`delivered` for the others."""

    def moved(self, deliveries: Sequence[QueueDelivery], seconds: float) -> None:
        """Record how often these were delivered, and that they are hidden for so many seconds from now; 0: no more."""

    def use(self) -> None:
        """Record that a consumer asked for a message, even if the queue is empty."""

    def gone(self, offsets: Iterable[int]) -> None:
        """Record that the messages with these offsets, and perhaps volatile ones, were acknowledged or dropped."""

    def bury(self, dead: Sequence[LastDelivery]) -> None:
        """Publish dead letters; the messages stay in the journal until these are stored."""

    def withdraw(self, tag: int) -> bool:
        """Forget the last delivery with this tag before its dead letter is stored; False if there is none."""

    def close(self) -> None:
        """Forget all, and stop recording."""

    def lowest(self) -> int:
        """Return the lowest offset that the queue needs, 0 if it needs none."""

    def readAge(self, found: Callable[[float | None], None]) -> None:
        """Read from the journal how many seconds ago the oldest waiting message was stored; None if it is lost."""

    def writeInto(self, state: QueueState) -> None:
        """Write the part of the queue that is in the journal into a state."""

    def restore(self, state: QueueState) -> list[QueueDelivery]:
        """Restore a state, and return its deliveries; those that are still hidden are in flight again."""

    def know(self, tag: int, message: Message) -> bool:
        """Set the id of a delivery restored with this tag; False if it is not in the queue any more."""
