"""The ids of a work queue's messages, by which clients of MiniMQ acknowledge them.

Messages of other dialects get an id that is valid in MiniMQ: those of FlexiMQ, whose consumers settle by tags, only
when a client of MiniMQ takes them, all others when they are added.
"""

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter

from fleximq.broker.consumers.delivered_ids import DeliveredIds
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.queue import Queue
from fleximq.values.message import Message
from fleximq.values.message_run import MessageRun

_isLine = attrgetter("line")
_headOf = attrgetter("head")


class MessageIds:
    """The ids of one queue; true while any queue has messages that were delivered by their ids.

    :param idOf: returns the id of a message, or a new one.
    :param delivered: finds delivered messages of all queues by their ids.
    :param always: all messages get an id when they are added, as dead letters, which are returned by it.
    """

    __slots__ = ("_always", "_delivered", "_idOf", "_lacksSome")

    def __init__(self, idOf: Callable[[Message], str], delivered: DeliveredIds, always: bool) -> None:
        self._idOf, self._delivered, self._always = idOf, delivered, always
        self._lacksSome = False

    def __bool__(self) -> bool:
        return bool(self._delivered)

    def added(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return messages that are added to the queue, or read again, with the ids that they need now."""
        if type(messages) is MessageRun and not self._always:  # messages of FlexiMQ
            self._lacksSome = True
            return messages
        if all(map(_isLine, messages)):
            return messages  # the ids of MiniMQ's own messages are valid
        if not self._always and all(map(_headOf, messages)):
            self._lacksSome = True
            return messages
        return [self._identified(message) for message in messages]

    def taken(self, lane: Queue, deliveries: list[QueueDelivery]) -> list[QueueDelivery]:
        """Return deliveries of a lane to a client of MiniMQ with ids, which they have as long as they are in flight."""
        if self._lacksSome:
            deliveries = [self._withId(lane, delivery) for delivery in deliveries]
        self._delivered.deliveredMany(lane, deliveries)
        return deliveries

    def _withId(self, lane: Queue, delivery: QueueDelivery) -> QueueDelivery:
        message = self._identified(delivery.message)
        if message is not delivery.message:
            lane.identify(delivery.tag, message.message_id)
        return delivery._replace(message=message)

    def know(self, lane: Queue, tag: int, message: Message) -> None:
        """Set the id of a message that was delivered with this tag of a lane before a restart."""
        identified = self._identified(message)
        if lane.recorder is not None and lane.recorder.know(tag, identified):
            self._delivered.delivered(identified.message_id or "", (lane, tag))

    def moved(self, lane: Queue, delivery: QueueDelivery, gone: bool) -> None:
        """Note that a delivery has ended: its message is ``gone``, or has returned to the queue."""
        note = self._delivered.forget if gone else self._delivered.returned
        note(delivery.message.message_id or "", (lane, delivery.tag))

    def forget(self, lane: Queue, tags: Iterable[int]) -> None:
        """Forget the ids of messages that are settled by their tags, as they were delivered by ids before."""
        for tag in tags:
            delivery = lane.stored.flying.get(tag)
            if delivery is not None:
                self._delivered.forget(delivery.message.message_id or "", (lane, tag))

    def _identified(self, message: Message) -> Message:
        messageId = self._idOf(message)
        return message if messageId == message.message_id else message._replace(message_id=messageId)
