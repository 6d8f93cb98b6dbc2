"""Last deliveries of a durable queue: each message stays in the journal until its dead letter is stored."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from fleximq.broker.envelope import LastDelivery, QueueDelivery
from fleximq.broker.queues.delivery_limit import DEAD_LETTERS
from fleximq.broker.queues.message_place import ONLY_IN_JOURNAL
from fleximq.broker.queues.message_reads import readMessages
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_reader import LOST, READ_MESSAGES
from fleximq.interfaces import IJournal
from fleximq.values.message import Message
from fleximq.values.message_cost import costOf

#: Counted when a dead letter cannot be stored, so that the message stays in its queue.
DEAD_LETTERS_REFUSED = "dead letters that could not be kept"


class DeadLetterLog(Protocol):
    """The part of :class:`fleximq.broker.queues.queue_recorder.QueueLog` that dead letters need."""

    journal: IJournal

    def deadLetter(self, queue: Queue, delivery: LastDelivery, kept: Callable[[str | None], None]) -> None:
        """Publish the message of a last delivery; report None if it is stored, else the reason of the failure."""

    def burying(self, queue: Queue, tags: Iterable[int]) -> None:
        """Note that the dead letters of a queue's messages are being stored."""

    def buried(self, queue: Queue, tags: Iterable[int]) -> None:
        """Note that they are stored or refused, and that the state record of their messages is collected."""


class LastDeliveries(dict[int, LastDelivery]):
    """Last deliveries of ``queue`` by tag, while their dead letters are being stored.

    :param withIds: returns messages with the ids that they had.
    :param gone: called with the offsets of messages that are lost or have stored dead letters.
    """

    __slots__ = ("_gone", "_log", "_withIds", "queue")
    queue: Queue

    def __init__(
        self,
        log: DeadLetterLog,
        withIds: Callable[[Sequence[Message]], Sequence[Message]],
        gone: Callable[[Iterable[int]], None],
    ) -> None:
        self._log = log
        self._withIds = withIds
        self._gone = gone

    def bury(self, dead: Sequence[LastDelivery]) -> None:
        """Publish dead letters, read from the journal if need be."""
        self.update({delivery.tag: delivery for delivery in dead})
        self._log.burying(self.queue, [delivery.tag for delivery in dead])
        onDisk = []
        for delivery in dead:
            if delivery.message.payload is ONLY_IN_JOURNAL:
                onDisk.append(delivery)
            else:
                self._publish(delivery)
        self._read(onDisk)

    def withdraw(self, tag: int) -> bool:
        """Forget a delivery that was acknowledged late; False if it is not here."""
        delivery = self.pop(tag, None)
        if delivery is not None:
            self._forget(delivery)
        return delivery is not None

    def clear(self) -> None:
        """Forget all deliveries."""
        tags = list(self)
        super().clear()
        self._log.buried(self.queue, tags)

    def _forget(self, delivery: LastDelivery) -> None:
        offset = delivery.message.offset
        self._gone([offset] if offset else [])
        self._log.buried(self.queue, [delivery.tag])
        self.queue.ended([delivery.tag])

    def _read(self, dead: Sequence[LastDelivery]) -> None:
        if dead and not self.queue.closed:
            portion = sorted(dead[:READ_MESSAGES], key=lambda delivery: delivery.message.offset)
            offsets = [delivery.message.offset for delivery in portion]
            readMessages(self._log.journal, self.queue, offsets, partial(self._areRead, portion, dead[READ_MESSAGES:]))

    def _areRead(
        self, portion: Sequence[LastDelivery], rest: Sequence[LastDelivery], messages: Sequence[Message]
    ) -> None:
        if self.queue.closed:
            return
        found = {message.offset: message for message in self._withIds(messages)}
        until = messages[-1].offset if messages else portion[-1].message.offset
        later = []
        for delivery in portion:
            offset = delivery.message.offset
            if offset > until:
                later.append(delivery)
            elif delivery.tag not in self:
                continue  # acknowledged late
            elif offset in found:
                self._publish(delivery._replace(message=found[offset]))
            elif self.pop(delivery.tag, None) is not None:
                self.queue.stored.counted(LOST, 1)
                self._forget(delivery)
        self._read([*later, *rest])

    def _publish(self, delivery: LastDelivery) -> None:
        self._log.deadLetter(self.queue, delivery, partial(self._decided, delivery.tag))

    def _decided(self, tag: int, reason: str | None) -> None:
        queue, delivery = self.queue, self.pop(tag, None)
        if delivery is None:
            return
        if reason is None:
            queue.stored.counted(DEAD_LETTERS[delivery.reason], 1)
            self._forget(delivery)
            return
        self._log.buried(queue, [tag])
        queue.stored.counted(DEAD_LETTERS_REFUSED, 1)
        queue.stored.size += costOf(delivery.message)
        returned = QueueDelivery(*delivery[:3])
        queue.stored.returned.add([returned])
        queue.stored.moved(returned, False)
        queue.wake()
