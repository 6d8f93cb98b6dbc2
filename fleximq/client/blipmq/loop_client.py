"""The BlipMQ client for any event loop; the public forms wrap it."""

import logging
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from fleximq.client.backoff import Backoff
from fleximq.client.blipmq.conversation import BlipConversation, BlipDelivery
from fleximq.client.errors import Answered, BufferFull, ConnectionLost, Nacked, SubscribeFailed
from fleximq.client.loops.connection import Loop
from fleximq.client.payloads import severalOf
from fleximq.client.protocol.unconfirmed import Refusals
from fleximq.client.queues.prefetch import Pulled
from fleximq.client.queues.reconnecting_link import IDLE, ReconnectingLink
from fleximq.client.settings import TIMEOUT, ClientSettings, State, isText
from fleximq.client.topic_warnings import literalTopic
from fleximq.client.wrapper import Wrapper, called
from fleximq.errors import SettingError
from fleximq.limits import BLIP_FRAME_BYTES, MEBIBYTE
from fleximq.values.urls import Url
from fleximq.wire.blipmq_frame import COUNTED_BYTES
from fleximq.wire.blipmq_payload import Nack, encodePublish

_log = logging.getLogger(__name__)
#: Default limit of prefetched deliveries.
PREFETCH = 64
#: Publications are sent in chunks of about this size.
_CHUNK_BYTES = MEBIBYTE
#: Limit of remembered changes of topic, for the topics in NACKs.
_MAX_TOPICS = 10_000
_UNKNOWN = 404


class LoopBlipClient(ReconnectingLink):
    """A connection to a broker in the BlipMQ dialect; it reconnects by itself."""

    _conversation: BlipConversation

    def __init__(self, loop: Loop, urls: Sequence[Url], settings: ClientSettings, key: str = "") -> None:
        super().__init__(loop, urls, settings)
        if not isText(key):
            raise SettingError("the key is not a text in UTF-8")
        self._key = key
        self._conversation = BlipConversation(self._nacked)
        self._number = 1
        self._topics: deque[tuple[int, str]] = deque(maxlen=_MAX_TOPICS)
        self._refusals = Refusals()
        self._isUnflushed = False
        self._loss: ConnectionLost | None = None
        self._buffered: list[bytes] = []
        self._bufferedBytes = 0
        self._unsentAcks: list[tuple[int, int]] = []
        self._ignoredTags: set[int] = set()
        self._subscriptions: dict[int, LoopBlipSubscription] = {}
        self._replaced: set[int] = set()

    @literalTopic
    async def publish(self, topic: str, payload: bytes | str, qos: int = 1) -> int:
        """Publish a message and return its number; :meth:`flush` waits until it is processed.

        :param payload: bytes, or a text, which is sent as UTF-8; raises TypeError for anything else.
        :param qos: 1, or 0 for messages that need not be stored.
        :raises ValueError: the message is too large for a frame, or the QoS is invalid.
        :raises BufferFull: the broker is unreachable and the buffer is full.
        :raises ConnectionLost: the client is closed.
        """
        return (await self._publishMany(topic, (payload,), qos))[0]

    @literalTopic
    async def publish_many(self, topic: str, payloads: Iterable[bytes | str], qos: int = 1) -> range:
        """Publish several messages at once, several times as fast as single ones; return their numbers.

        Errors as :meth:`publish`; if the buffer becomes full, earlier chunks may have been sent.
        """
        return await self._publishMany(topic, payloads, qos)

    async def _publishMany(self, topic: str, payloads: Iterable[bytes | str], qos: int) -> range:
        if qos not in (0, 1):
            raise ValueError(f"qos is {qos}, but must be 0 or 1")
        head = encodePublish(topic, qos)
        messages = [_bytesOf(each) for each in severalOf(payloads)]
        longest = max(map(len, messages), default=0) + len(head) + COUNTED_BYTES
        if longest > BLIP_FRAME_BYTES:
            raise ValueError(f"a message would need a frame of {longest} bytes, but the limit is {BLIP_FRAME_BYTES}")
        numbers = range(self._number, self._number + len(messages))
        self._number += len(messages)
        for first, chunk in _chunks(messages):
            await self._post(topic, head, numbers[0] + first, chunk)
        return numbers

    async def _post(self, topic: str, head: bytes, first: int, messages: Sequence[bytes]) -> None:
        self._checkOpen()
        if not self._topics or self._topics[-1][1] != topic:
            self._topics.append((first, topic))
        data = self._conversation.publications(head, first, messages)
        if self.state is State.JOINED:
            self._isUnflushed = True
            await self._connection.sendAndDrain(data)
            return
        if self._bufferedBytes + len(data) > self._settings.buffer:
            raise BufferFull(f"the broker is unreachable, and the buffer already holds {self._bufferedBytes} bytes")
        self._buffered.append(data)
        self._bufferedBytes += len(data)

    @literalTopic
    async def subscribe(
        self, topic: str, qos: int = 1, prefetch: int = PREFETCH, idle: Backoff = IDLE, timeout: float | None = TIMEOUT
    ) -> "LoopBlipSubscription":
        """Subscribe to a topic, and wait until the broker has confirmed it.

        It continues after a reconnect. If the broker has forgotten it, the client subscribes again, and messages
        published in between are lost to it.

        :param prefetch: the limit of prefetched deliveries.
        :param idle: the delays between polls of an empty subscription.
        :raises SubscribeFailed: the broker refused.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        """
        subscriptionId = await self._subscribed(topic, qos, timeout)
        return LoopBlipSubscription(self, subscriptionId, topic, qos, prefetch, idle)

    async def _subscribed(self, topic: str, qos: int, timeout: float | None) -> int:
        await self._waitUntilJoined(timeout)
        try:
            return await self._ask(self._conversation.subscribe(topic, qos), timeout, f"the subscription to {topic}")
        except Answered as error:
            raise SubscribeFailed(error.status, error.words, topic) from None

    def resume(self, id: int, prefetch: int = PREFETCH, idle: Backoff = IDLE) -> "LoopBlipSubscription":
        """Continue a subscription by its ``id``; it may be of an earlier client with the same key.

        Raises ValueError if it is already open in this client. If the broker does not know it, reading the first
        delivery raises :class:`~fleximq.client.errors.SubscribeFailed` with 404.
        """
        self._checkOpen()
        if id in self._subscriptions:
            raise ValueError(f"the subscription {id} is open already")
        return LoopBlipSubscription(self, id, None, None, prefetch, idle)

    def ack(self, delivery: BlipDelivery) -> None:
        """Acknowledge a delivery, of this client's subscriptions only once; the next :meth:`flush` raises a NACK."""
        subscription = self._subscriptions.get(delivery.subscription)
        if subscription is not None:
            subscription.ack(delivery)
        elif delivery.qos and delivery.subscription not in self._replaced:
            self._acknowledge(delivery.subscription, [delivery.tag])

    async def flush(self, timeout: float | None = TIMEOUT) -> None:
        """Wait until the broker has processed everything sent so far; with QoS 1 on durable topics, written to disk.

        :raises Nacked: a message sent since the last flush was refused; raised by one of concurrent flushes.
        :raises ConnectionLost: the connection was lost since the last flush, so messages may be lost.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        self._checkLosses()
        await self._waitUntilJoined(timeout)
        self._checkLosses()
        wasUnacknowledged = self._isUnacknowledged
        last, self._isUnflushed, self._isUnacknowledged = self._number, False, False
        try:
            await self._ask(self._conversation.ping(), timeout, "a flush")
        except BaseException as error:
            if not isinstance(error, ConnectionLost):
                self._isUnflushed, self._isUnacknowledged = True, wasUnacknowledged
            raise
        if last == self._number:
            self._topics.clear()
        refused, self._refusals = self._refusals, Refusals()
        refused.check()

    async def close(self, timeout: float | None = TIMEOUT) -> None:
        """Flush messages and ACKs sent since the last flush, and end the connection; iterations end.

        Unacknowledged and prefetched deliveries are delivered again to the next client that polls the subscription. The
        connection ends even if the flush fails. Closing again has no effect. Errors as :meth:`flush`.
        """
        for each in self._subscriptions.values():
            each.close()
        try:
            isOwing = self._isUnflushed or self._isUnacknowledged or self._buffered or self._loss
            if self.state is not State.CLOSED and (isOwing or self._refusals.count):
                await self.flush(timeout)
        finally:
            self._end(None)

    def _checkLosses(self) -> None:
        if self._loss is not None:
            lost, self._loss = self._loss, None
            raise type(lost)(f"messages sent since the last flush may be lost: {lost}")

    def _nacked(self, number: int | None, tag: int | None, nack: Nack) -> None:
        if number is None and tag is None:
            self._lose(ConnectionLost(f"the broker ended it: {nack.code} {nack.message}"))
            return
        if tag in self._ignoredTags and nack.code == _UNKNOWN:
            return
        place = 0 if number is None else bisect_right(self._topics, number, key=lambda each: each[0])
        error = Nacked(nack.code, nack.message, self._topics[place - 1][1] if place else "")
        error.number, error.tag = number, tag
        self._refusals.add(error)

    def _acknowledge(self, subscription: int, tags: Sequence[int]) -> None:
        if self.state is State.JOINED:
            self._isUnacknowledged = True
            self._connection.send(self._conversation.ack(subscription, tags))
        else:
            self._unsentAcks += [(subscription, tag) for tag in tags]

    async def _greet(self) -> None:
        self._conversation = BlipConversation(self._nacked)
        data, hello, auth = self._conversation.hello(self._key)
        await self._ask((data, hello), self._attempt.timeout, "")
        await self._loop.wait(auth, self._attempt.timeout, "")

    def _onJoined(self) -> None:
        acks, self._unsentAcks = self._unsentAcks, []
        self._ignoredTags = {tag for _, tag in acks}
        for subscription in self._subscriptions.values():
            # The broker may have forgotten or redelivered them.
            self._ignoredTags.update(each.tag for each in subscription._delivered)
        for subscriptionId, tag in acks:
            if subscriptionId not in self._replaced:
                self._connection.send(self._conversation.ack(subscriptionId, [tag]))
                self._isUnacknowledged = True
        if self._buffered:
            self._isUnflushed = True
            self._connection.send(b"".join(self._buffered))
            self._buffered, self._bufferedBytes = [], 0

    def _failPending(self, lost: ConnectionLost) -> None:
        if self._isUnflushed:
            self._isUnflushed = False
            self._loss = lost
        for each in self._subscriptions.values():
            each._connectionLost()
            if self.state is State.CLOSED:
                each._ended(self._ending)


class LoopBlipSubscription(Pulled[BlipDelivery]):
    """The messages of a topic, in order: iterate over it, or call :meth:`next`.

    Another client with the same key can :meth:`~LoopBlipClient.resume` its ``id``; ``topic`` and ``qos`` are None then.
    """

    def __init__(
        self,
        client: LoopBlipClient,
        subscriptionId: int,
        topic: str | None,
        qos: int | None,
        prefetch: int,
        idle: Backoff,
    ) -> None:
        super().__init__(client, prefetch, idle)
        self._client = client
        self.id = subscriptionId
        self.topic = topic
        self.qos = qos
        #: Acknowledged tags; no PONG has confirmed them yet.
        self._unconfirmed: deque[int] = deque()
        client._subscriptions[subscriptionId] = self

    def __repr__(self) -> str:
        name = "" if self.topic is None else f" to {self.topic}"
        return f"<BlipSubscription {self.id}{name}, {self.waiting} waiting>"

    async def _fetch(self, most: int) -> int:
        sure = len(self._unconfirmed)
        try:
            client = self._client
            deliveries = await client._ask(client._conversation.poll(self.id, most), None, "")
            if self.topic is not None and any(each.topic != self.topic for each in deliveries):
                # The broker has restarted, and the id belongs to another subscription, to which they are redelivered.
                raise SubscribeFailed(_UNKNOWN, "the subscription is another one", self.topic)
        except SubscribeFailed as error:
            if error.status != _UNKNOWN or self.topic is None or self.qos is None:
                raise
            await self._resubscribe(self.topic, self.qos)
            return 0
        # Late ACKs cause redeliveries of messages that are fetched already, or whose ACK is in transit.
        known = {each.tag for each in (*self._fetched, *self._delivered) if each.qos}.union(self._unconfirmed)
        self._fetched += [each for each in deliveries if each.tag not in known]
        for _ in range(min(sure, len(self._unconfirmed))):
            self._unconfirmed.popleft()
        return len(deliveries)

    async def _resubscribe(self, topic: str, qos: int) -> None:
        """Replace a subscription that the broker has forgotten."""
        client, forgotten = self._client, self.id
        self.id = await client._subscribed(topic, qos, client._settings.timeout)
        _log.warning("The broker has forgotten the subscription to %s; subscribing again", topic)
        client._subscriptions.pop(forgotten, None)
        client._replaced.add(forgotten)
        client._subscriptions[self.id] = self
        self._delivered.clear()
        self._unconfirmed.clear()

    def _acknowledge(self, messages: Sequence[BlipDelivery]) -> None:
        tags = [each.tag for each in messages if each.qos]
        if tags:
            self._unconfirmed += tags
            self._client._acknowledge(self.id, tags)

    def _connectionLost(self) -> None:
        """Drop prefetched deliveries with QoS 1, which the broker delivers again, and repeat unconfirmed ACKs later."""
        self._fetched = deque(each for each in self._fetched if not each.qos)
        self._isEmpty = False
        self._client._unsentAcks += [(self.id, tag) for tag in self._unconfirmed]


class SubscriptionWrapper(Wrapper[LoopBlipSubscription]):
    """A subscription in a form that wraps it."""

    @property
    def id(self) -> int:
        """The id at the broker; another client with the same key can resume it."""
        return self._inner.id

    @property
    def topic(self) -> str | None:
        """The topic; None if the subscription was resumed."""
        return self._inner.topic

    ack = called(LoopBlipSubscription.ack)
    leave = called(LoopBlipSubscription.leave)


def _bytesOf(payload: bytes | str) -> bytes:
    if isinstance(payload, str):
        return payload.encode()
    if not isinstance(payload, bytes | bytearray | memoryview):
        raise TypeError(f"a payload is {type(payload).__name__}, but must be bytes or str")
    return bytes(payload)


def _chunks(messages: Sequence[bytes]) -> Iterator[tuple[int, Sequence[bytes]]]:
    """Yield chunks of about 1 MiB, each with the index of its first message."""
    first = size = 0
    for place, message in enumerate(messages):
        size += len(message) + COUNTED_BYTES
        if size >= _CHUNK_BYTES:
            yield first, messages[first : place + 1]
            first, size = place + 1, 0
    if first < len(messages):
        yield first, messages[first:] if first else messages
