"""After how many deliveries a message becomes a dead letter, and where dead letters go."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from fleximq.broker.envelope import LastDelivery, QueueDelivery
from fleximq.broker.queues.bounds import DROPPED
from fleximq.broker.queues.stored_messages import StoredMessages
from fleximq.values import message_loops
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.values.death_reason import DeathReason

#: Counted for dead letters that were published, by reason.
DEAD_LETTERS = {reason: CountedEvent(EventFamily.DEAD_LETTERS, reason.value) for reason in DeathReason}

Q = TypeVar("Q")


@dataclass(frozen=True, slots=True, eq=False)
class DeliveryLimit(Generic[Q]):
    """The limit of a broker's queues.

    :param deliveries: the maximum number for one message; 0: unlimited.
    :param onDead: called with the queue and the last delivery of a dead message; None: deliveries are unlimited.
    :param withdrawLetter: removes the dead letter of this queue's message with a tag, since its acknowledgement arrived
        late, and tells whether there was one; None: dead messages cannot be acknowledged.
    :param onError: called with the exceptions of ``onDead``.
    """

    deliveries: int = 0
    onDead: Callable[[Q, LastDelivery], object] | None = None
    withdrawLetter: Callable[[Q, int], bool] | None = None
    onError: Callable[[Exception], object] = lambda error: None

    def last(self, deliveries: Sequence[QueueDelivery]) -> Sequence[LastDelivery]:
        """Return those that were the last deliveries of their messages."""
        if not self.deliveries or self.onDead is None:
            return ()
        reason = DeathReason.ATTEMPTS
        return [LastDelivery(*delivery, reason) for delivery in deliveries if delivery.attempts >= self.deliveries]

    def bury(self, queue: Q, stored: StoredMessages, dead: Sequence[LastDelivery]) -> None:
        """Publish dead letters, or drop the messages if they can have none."""
        isFinal = self.onDead is None or self.withdrawLetter is None
        for delivery in dead:  # for good if no late acknowledgement can withdraw their dead letters
            stored.moved(QueueDelivery(*delivery[:3]), isFinal)
        if self.onDead is None:
            stored.counted(DROPPED, len(dead))
            if stored.recorder is not None:
                stored.recorder.gone(message_loops.offsetsOf([delivery.message for delivery in dead]))
        elif stored.recorder is not None:
            stored.recorder.bury(dead)
            return
        else:
            for reason, number in Counter([delivery.reason for delivery in dead]).items():
                stored.counted(DEAD_LETTERS[reason], number)
            for delivery in dead:
                try:
                    self.onDead(queue, delivery)
                except Exception as error:
                    self.onError(error)
        stored.ended([delivery.tag for delivery in dead])

    def withdraw(self, queue: Q, stored: StoredMessages, tag: int) -> bool:
        """Withdraw the dead letter of the message with this tag; False if there is none."""
        dying = stored.recorder is not None and stored.recorder.withdraw(tag)
        return (self.withdrawLetter is not None and self.withdrawLetter(queue, tag)) or dying
