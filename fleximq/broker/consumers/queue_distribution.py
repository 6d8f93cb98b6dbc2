"""Distributes the messages of one queue over its consumers, in turn.

Consumers that ask once (MiniMQ) and consumers with a prefetch take turns in one line each. A wake gives each consumer
a fair share of the messages at once, by one call: with many messages and few consumers a delivery costs no more than
its part of a batch, with one message only the consumer whose turn it is learns of it.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Protocol

from fleximq.broker.consumers.queue_consumer import QueueConsumer
from fleximq.broker.envelope import QueueDelivery
from fleximq.broker.queues.waiting_consumers import WaitingConsumers

#: Maximum number of deliveries at once: a run of messages may share a long header, which each delivery has.
BATCH = 256


class Supply(Protocol):
    """The messages of a queue."""

    @property
    def available(self) -> int:
        """How many messages can be delivered now."""

    def takeFor(self, consumer: QueueConsumer, number: int, most: int) -> Sequence[QueueDelivery]:
        """Deliver up to ``number`` messages to a consumer, until they cost ``most`` bytes."""

    def watch(self) -> None:
        """Call :meth:`Distribution.wake` once when there may be more messages; a no-op if that is expected already."""


class Distribution:
    """The consumers of one queue; ``onError`` receives the exceptions of their callbacks."""

    __slots__ = ("_isRunning", "_onError", "_ready", "_supply", "_waiters", "consumers")

    def __init__(self, supply: Supply, onError: Callable[[Exception], object]) -> None:
        self._supply = supply
        self._onError = onError
        self._waiters = WaitingConsumers(onError)  # type: ignore[arg-type]
        #: Each consumer by its client.
        self.consumers: dict[object, QueueConsumer] = {}
        self._ready: OrderedDict[QueueConsumer, None] = OrderedDict()
        self._isRunning = False

    @property
    def waiting(self) -> int:
        """The number of consumers that would get a message now."""
        return len(self._waiters.calls) + len(self._ready)

    @property
    def asking(self) -> int:
        """The number of consumers that have asked once, and wait."""
        return len(self._waiters)

    def add(self, consumer: QueueConsumer) -> None:
        """Add a consumer, and deliver what it may have."""
        self.consumers[consumer.client] = consumer
        self.hasRoom(consumer)

    def remove(self, consumer: QueueConsumer) -> None:
        """Remove a consumer."""
        consumer.closed = True
        self.consumers.pop(consumer.client, None)
        self._ready.pop(consumer, None)

    def hasRoom(self, consumer: QueueConsumer) -> None:
        """Put a consumer in the line if it has room for deliveries, otherwise remove it from there, and deliver."""
        if consumer.room > 0:
            self._ready.setdefault(consumer)
        else:
            self._ready.pop(consumer, None)
        self.wake()

    def whenReady(self, call: Callable[[], None]) -> Callable[[], None]:
        """Call once when a message can be taken, in the order of requests; return a function that cancels this."""
        cancel = self._waiters.add(call)
        self._supply.watch()
        return cancel

    def wake(self) -> None:
        """Deliver messages as long as there are some, and consumers for them."""
        if self._isRunning:  # the outer call goes on
            return
        self._isRunning = True
        try:
            while (waiting := self.waiting) and (available := self._supply.available) > 0:
                if not self._round(available, -(-available // waiting)):
                    break
        finally:
            self._isRunning = False
        if waiting:
            self._supply.watch()

    def _round(self, available: int, share: int) -> bool:
        """Let the consumers of both lines have a share in turn, until each has had one or no message is left; return
        whether one could take a message.
        """
        taken = 0
        for _ in range(max(len(self._ready), 1)):
            if asking := len(self._waiters.calls):
                self._waiters.wake(lambda: min(1, self._supply.available))
                taken += asking - len(self._waiters.calls)
            if not self._ready or taken >= available:
                break
            consumer, _ = self._ready.popitem(last=False)
            room = consumer.room
            if room <= 0:  # its prefetch was reduced meanwhile
                continue
            number = self._give(consumer, min(share, room, BATCH))
            if not number:
                break
            taken += number
        return taken > 0

    def _give(self, consumer: QueueConsumer, most: int) -> int:
        """Deliver up to ``most`` messages to a consumer, and return how many; after 0 it is the next in the line."""
        deliveries = self._supply.takeFor(consumer, most, consumer.space)
        if not deliveries:
            self._ready[consumer] = None
            self._ready.move_to_end(consumer, last=False)
            return 0
        consumer.add(deliveries)
        if consumer.room > 0:
            self._ready[consumer] = None
        try:
            consumer.deliver(deliveries)
        except Exception as error:
            self._onError(error)
        return len(deliveries)
