"""One connection of kombu: it consumes from each queue once, and passes the deliveries to the consumers in turn."""

import socket
from contextlib import suppress
from typing import Any

from amqp.exceptions import ConsumerCancelled

from fleximq.client.errors import ClientError, NotSettled
from fleximq.client.protocol.consumers import JobBox
from fleximq.client.wrapper import completed
from fleximq.integrations.kombu.channel import Channel, Consumer, Received
from fleximq.integrations.kombu.client import KombuClient
from fleximq.values.queue_keys import MOST_PREFETCH

#: Seconds in which :meth:`Connection.get` waits for a message that must be read from disk.
_READ_SECONDS = 1.0


class Connection:
    """One connection with its channels. ``exchanges`` has the types that were declared, ``exclusive`` the queues that
    are deleted with the connection.
    """

    def __init__(self, client: Any, inner: KombuClient) -> None:
        self.client = client
        self.inner = inner
        self.channels: set[Channel] = set()
        self.exchanges: dict[str, str] = {}
        self.exclusive: set[str] = set()
        self._consumers: dict[str, list[Consumer]] = {}
        self._isDraining = False
        #: Wakes the event loop when another thread has read deliveries.
        self._wake: tuple[socket.socket, socket.socket] | None = None

    @property
    def connected(self) -> bool:
        """Whether it is connected."""
        return self.inner.isConnected

    def channel(self) -> Channel:
        """Return a new channel."""
        channel = Channel(self)
        self.channels.add(channel)
        return channel

    def close(self) -> None:
        """Close all channels, delete exclusive queues, and disconnect."""
        for channel in list(self.channels):
            channel.close()
        if self.connected:
            for queue in self.exclusive:
                with suppress(ClientError):
                    completed(self.inner.ask("/queue/delete", {"queue": queue}))
        with suppress(ClientError):
            completed(self.inner.close())
        self.collect()

    def collect(self) -> None:
        """Disconnect at once, without a word to the broker: also in a forked child."""
        self.inner.hang_up()
        if self._wake is not None:
            for each in self._wake:
                each.close()
            self._wake = None

    # -- consumers ---------------------------------------------------------------------------------

    def consume(self, queue: str, consumer: Consumer) -> None:
        """Add a consumer of a queue; raises SubscribeFailed."""
        self._consumers.setdefault(queue, []).append(consumer)
        try:
            self._open(queue)
        except BaseException:
            self._consumers[queue].remove(consumer)
            raise
        self.adjust(queue)

    def cancel(self, queue: str, tag: str) -> None:
        """Remove a consumer of a queue."""
        self._consumers[queue] = [each for each in self._consumers[queue] if each.tag != tag]
        self.adjust(queue)
        if not self._consumers[queue]:
            box = self.inner.box(queue)
            while box is not None and (job := self.inner.take(box)) is not None:
                with suppress(NotSettled):
                    job.retry(0)  # nobody has seen it
            self.inner.settleNow()
            self._stopIfUnused(queue)

    def _open(self, queue: str) -> JobBox:
        """Return the unread jobs of a queue, from which the client consumes since now without a delivery."""
        box = self.inner.box(queue)
        if box is None:
            completed(self.inner.consume(queue, self._prefetch(queue) or 1))
            box = self.inner.box(queue)
            assert box is not None
            box.onNews = self._news
            if box.waiting:  # read with the answer: without a wake-up, an event loop waits until the next delivery
                self._news()
        return box

    def _unsettled(self, queue: str) -> int:
        return sum(job.queue == queue for each in self.channels for job, _ in each.unsettled.values())

    def _prefetch(self, queue: str) -> int:
        """Return how many unsettled deliveries of a queue the client may have: those of its consumers, and those of
        consumers that have ended.
        """
        consumers = self._consumers.get(queue, ())
        if any(not each.channel.prefetch for each in consumers):
            return MOST_PREFETCH
        tags = {each.tag for each in consumers}
        others = sum(
            job.queue == queue and tag not in tags for each in self.channels for job, tag in each.unsettled.values()
        )
        return min(sum(each.channel.prefetch for each in consumers) + (others if consumers else 0), MOST_PREFETCH)

    def adjust(self, queue: str) -> None:
        """Tell the broker how many deliveries of a queue may be unsettled."""
        box = self.inner.box(queue)
        if box is not None and box.prefetch != (prefetch := self._prefetch(queue)):
            self.inner.setPrefetch(box, prefetch)

    def _stopIfUnused(self, queue: str) -> None:
        box = self.inner.box(queue)
        if box is not None and not self._consumers.get(queue) and not self._unsettled(queue):
            self.inner.stopConsuming(box)

    def settled(self, queue: str, isConsumed: bool) -> None:
        """Send a settlement, at once unless deliveries are being passed on.

        :param isConsumed: whether the consumer of the delivery still consumes. If not, the delivery was counted beside
            what the others may have; counting all of them again costs the number of unsettled deliveries.
        """
        if not self._isDraining:
            self.inner.settleNow()
        if not isConsumed:
            self.adjust(queue)
            self._stopIfUnused(queue)

    def get(self, channel: Channel, queue: str, noAck: bool) -> Received | None:
        """Return one message of a queue, None if there is none."""
        box = self._open(queue)
        self.inner.setPrefetch(box, min(self._unsettled(queue) + 1, MOST_PREFETCH))
        completed(self.inner.flush())
        if not box.waiting and channel.queue_declare(queue, passive=True).message_count:
            self.inner.waitFor(lambda: box.waiting, _READ_SECONDS)
        job = self.inner.take(box)
        found = None if job is None else channel.received(job, "", noAck)
        self.inner.settleNow()
        self.adjust(queue)
        self._stopIfUnused(queue)
        return found

    # -- deliveries --------------------------------------------------------------------------------

    def _news(self) -> None:
        if self._wake is not None:
            with suppress(OSError):
                self._wake[1].send(b"\0")

    def _hasNews(self) -> bool:
        return any(box.waiting or box.end for queue in self._consumers if (box := self.inner.box(queue)) is not None)

    def drain(self, timeout: float | None = None) -> None:
        """Pass available deliveries to their consumers, after at most ``timeout`` seconds.

        :raises socket.timeout: there was none.
        :raises ConnectionLost: the connection has ended.
        """
        if not self.passAvailable(timeout):
            raise TimeoutError("no delivery")

    def passAvailable(self, timeout: float | None) -> bool:
        """As :meth:`drain`, but return whether there was any; so a TimeoutError is one of a consumer."""
        if not self._hasNews():
            self.inner.waitFor(self._hasNews, timeout)
        found = False
        self._isDraining = True
        try:
            for queue in list(self._consumers):
                found |= self._pass(queue)
        finally:
            self._isDraining = False
            self.inner.settleNow()
        return found

    def _pass(self, queue: str) -> bool:
        """Pass the deliveries of one queue to its consumers in turn; return whether there were any."""
        box, found = self.inner.box(queue), False
        if box is None and self._consumers[queue]:
            del self._consumers[queue]
            raise ConsumerCancelled(f"the broker ended the consumption of {queue!r}")
        while box is not None and (consumers := self._consumers.get(queue)) and (job := self.inner.take(box)):
            found = True
            consumer = consumers[0]
            consumers.append(consumers.pop(0))
            consumer.callback(consumer.channel.received(job, consumer.tag, consumer.no_ack))
        return found

    # -- event loops -------------------------------------------------------------------------------

    def descriptors(self) -> tuple[int, int]:
        """Return the descriptors that are readable when there may be deliveries: the socket, and one for those that
        another thread has read.
        """
        if self._wake is None:
            self._wake = socket.socketpair()
            for each in self._wake:
                each.setblocking(False)
            if self._hasNews():
                self._news()
        return self.inner.fileno(), self._wake[0].fileno()

    def slept(self) -> None:
        """Forget the wake-ups so far."""
        if self._wake is not None:
            with suppress(BlockingIOError):
                while self._wake[0].recv(4096):
                    pass
