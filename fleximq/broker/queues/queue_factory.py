"""Makes a broker's queues with their times and bounds, in memory or durable."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.queues.delivery_limit import DeliveryLimit
from fleximq.broker.queues.durable_backlog import DurableBacklog
from fleximq.broker.queues.queue import Queue
from fleximq.broker.queues.queue_recorder import QueueLog, QueueRecorder
from fleximq.values.message import Message

#: Fields that are settings of each queue.
_SHARED = ("deadlines", "redelivery", "limit", "maxMessages", "maxBytes", "counted")


@dataclass(frozen=True, slots=True)
class QueueFactory:
    """Makes queues that differ in their names and in the arguments of :meth:`__call__`.

    ``timeToLiveOf`` returns after how many seconds a topic's messages expire, None for never. ``queueLog`` makes queues
    with a key durable, each with at most ``memory`` bytes of messages in memory.
    """

    deadlines: Deadlines
    redelivery: float
    limit: DeliveryLimit[Queue]
    maxMessages: int
    maxBytes: int
    counted: Callable[[str, int], None]
    timeToLiveOf: Callable[[str], float | None] = lambda topic: None
    queueLog: QueueLog | None = None
    memory: int = 16 << 20

    def __call__(
        self,
        name: str,
        key: str = "",
        withIds: Callable[[Sequence[Message]], Sequence[Message]] | None = None,
        **others: Any,
    ) -> Queue:
        """Return a new queue: a durable one if it has a key in the journal, and there is a journal."""
        settings: dict[str, Any] = {each: getattr(self, each) for each in _SHARED}
        settings |= {"name": name, "timeToLive": self.timeToLiveOf(name), **others}
        if self.queueLog is None or not key:
            return Queue(withIds=withIds, **settings)
        backlog = DurableBacklog(self.memory // 2, withIds)
        recorder = QueueRecorder(key, self.queueLog, backlog, withIds or _asTheyAre)
        queue = Queue(backlog=backlog, recorder=recorder, memory=self.memory, **settings)
        recorder.serve(queue)
        return queue


def _asTheyAre(messages: Sequence[Message]) -> Sequence[Message]:
    return messages
