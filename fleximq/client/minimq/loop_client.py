"""The MiniMQ client for any event loop; the public forms wrap it."""

import inspect
import logging
import uuid
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from fleximq.client.backoff import Backoff
from fleximq.client.errors import Answered, ClientError, ConnectionLost, ProduceFailed, ProduceTimeout
from fleximq.client.loops.connection import Loop
from fleximq.client.minimq.conversation import MiniConversation
from fleximq.client.payloads import severalOf
from fleximq.client.protocol.completion import Pending
from fleximq.client.queues.prefetch import Pulled
from fleximq.client.queues.reconnecting_link import IDLE, ReconnectingLink
from fleximq.client.settings import TIMEOUT, ClientSettings, State, Tls
from fleximq.client.topic_warnings import literalTopic
from fleximq.client.wrapper import Wrapper, called
from fleximq.status import Status
from fleximq.values.urls import Url
from fleximq.wire.minimq_message import MiniMessage

_log = logging.getLogger(__name__)
_ANSWER = "the answer to a PRODUCE"
_NO_CREDENTIALS = "MiniMQ has no credentials but a client certificate, or a listener of the broker with principal=NAME"
#: Limit of unanswered PRODUCEs.
_BATCH = 1000
#: The delays between polls for a reply.
_REPLY_BACKOFF = Backoff(first=0.001, most=0.1, factor=1.5, jitter=0.25)

Message = MiniMessage
#: Answers a message; returns the text, or an awaitable of it. None is an empty text.
Function = Callable[[Message], str | None | Awaitable[str | None]]


class LoopMiniClient(ReconnectingLink):
    """A connection to a broker in the MiniMQ dialect; it reconnects by itself."""

    _conversation: MiniConversation

    def __init__(self, loop: Loop, urls: Sequence[Url], settings: ClientSettings) -> None:
        super().__init__(loop, urls, settings)
        self._conversation = MiniConversation()
        self._unsentAcks: list[str] = []
        self._consumers: list[LoopConsumer] = []
        self._served: set[str] = set()
        self._replyTo = f"reply.{uuid.uuid4().hex}"
        self._replies: dict[str, Pending[Message]] = {}
        self._isReplyLoopRunning = False
        #: Ends the pause of the reply loop.
        self._newRequest: Pending[None] = Pending()

    @literalTopic
    async def produce(
        self,
        topic: str,
        content: str,
        id: str | None = None,
        correlation_id: str = "",
        reply_to: str = "",
        timeout: float | None = TIMEOUT,
    ) -> str:
        """Put a message into a queue, and return its id when it is confirmed and, with a journal, on disk.

        :param id: the message's id; a new UUID by default.
        :raises ProduceFailed: the broker refused.
        :raises ValueError: the message cannot be written in MiniMQ, e.g. its content has a line break.
        :raises ConnectionLost: or TimeoutError, after ``timeout`` seconds; the message may be in the queue.
        """
        message = Message(id or str(uuid.uuid4()), topic, content, correlation_id, reply_to)
        return await self._produce(message, timeout)

    async def _produce(self, message: Message, timeout: float | None = TIMEOUT) -> str:
        await self._waitUntilJoined(timeout)
        data, [pending] = self._conversation.produce([message])
        await self._connection.sendAndDrain(data)
        try:
            return await self._loop.wait(pending, timeout, _ANSWER)
        except ProduceFailed as error:
            await self._awaitEnd(error)
            raise

    async def _awaitEnd(self, error: ProduceFailed) -> None:
        """Wait until the connection has ended, if the broker ends it after this error: the next call needs another.

        The broker ends it after a line over its limit. After other errors it answers the PING.
        """
        if error.status == Status.BAD_REQUEST and self.state is State.JOINED:
            with suppress(ClientError, TimeoutError):
                await self._ask(self._conversation.ping(), self._settings.timeout, "")

    @literalTopic
    async def produce_many(self, topic: str, contents: Iterable[str], timeout: float | None = TIMEOUT) -> list[str]:
        """Put several messages into a queue at once, several times as fast as single ones; return their ids.

        :param timeout: seconds for each 1,000 messages.
        :raises ProduceFailed: the first of those that were refused, with the others. It has the ids of the messages in
            the queue, also if the connection has ended, as it does after a line over the broker's limit.
        :raises ConnectionLost: and ProduceTimeout, with the ids of those confirmed before; others may be in the queue.
        :raises ValueError: as :meth:`produce`; earlier messages may be in the queue, in steps of 1,000.
        """
        confirmed: dict[int, str] = {}
        failed: list[ProduceFailed] = []
        left = enumerate(severalOf(contents))
        try:
            while several := list(islice(left, _BATCH)):
                await self._produceBatch(topic, several, timeout, confirmed, failed)
        except (ConnectionLost, TimeoutError) as error:
            if not failed:
                kind = type(error) if isinstance(error, ConnectionLost) else ProduceTimeout
                ended = kind(str(error))
                ended.confirmed = confirmed
                raise ended from None
        if failed:
            failed[0].others, failed[0].confirmed = tuple(failed[1:]), confirmed
            await self._awaitEnd(failed[-1])
            raise failed[0]
        return list(confirmed.values())

    async def _produceBatch(
        self,
        topic: str,
        several: Sequence[tuple[int, str]],
        timeout: float | None,
        confirmed: dict[int, str],
        failed: list[ProduceFailed],
    ) -> None:
        """Produce values with their indexes, and add to ``confirmed`` and ``failed``."""
        await self._waitUntilJoined(timeout)
        messages = [Message(str(uuid.uuid4()), topic, content) for _, content in several]
        data, answers = self._conversation.produce(messages)
        await self._connection.sendAndDrain(data)
        for (place, _), pending in zip(several, answers, strict=True):
            try:
                confirmed[place] = await self._loop.wait(pending, timeout, _ANSWER)
            except ProduceFailed as error:
                error.place = place
                failed.append(error)

    @literalTopic
    async def consume(self, topic: str, timeout: float | None = TIMEOUT) -> Message | None:
        """Return a message of a queue, or None if it is empty. Without an :meth:`ack` it returns to the queue.

        :raises ConsumeFailed: the broker refused.
        :raises ConnectionLost: or TimeoutError, after ``timeout`` seconds; a message in transit returns to the queue.
        """
        await self._waitUntilJoined(timeout)
        return await self._ask(self._conversation.consume(topic), timeout, "the answer to a CONSUME")

    @literalTopic
    def consumer(self, topic: str, prefetch: int = 1, idle: Backoff = IDLE) -> "LoopConsumer":
        """Return an iterator over a queue that acknowledges each message when the next one is requested.

        :param prefetch: how many messages are fetched at once. More than one is faster, but other consumers cannot get
            prefetched messages, and those not acknowledged within the broker's timeout (30 s) are delivered to another
            consumer as well.
        :param idle: the delays between polls of an empty queue.
        """
        self._checkOpen()
        return LoopConsumer(self, topic, prefetch, idle)

    def ack(self, message: Message | str) -> None:
        """Acknowledge a message, or the message with this id; the broker does not answer, even if the id is unknown.

        :raises ConnectionLost: the client is closed.
        """
        self._checkOpen()
        if not isinstance(message, str):
            for consumer in self._consumers:
                consumer.leave(message)
            message = message.id
        self._acknowledge([message])

    @literalTopic
    async def request(self, topic: str, content: str, timeout: float | None = TIMEOUT) -> str:
        """Send a request to the services of a topic, and return the content of the answer.

        The answer arrives in a queue of this client's own, also after a reconnect.

        :raises TimeoutError: no answer within ``timeout`` seconds; the request may still be in the queue.
        :raises ProduceFailed: and ConnectionLost, as :meth:`produce`.
        """
        correlation = uuid.uuid4().hex
        pending = self._replies[correlation] = Pending()
        try:
            await self._produce(Message(str(uuid.uuid4()), topic, content, correlation, self._replyTo), timeout)
            self._startReplyLoop()
            return (await self._loop.wait(pending, timeout, f"the answer to {topic}")).content
        finally:
            self._replies.pop(correlation, None)

    def serve(self, topic: str, function: Function) -> None:
        """Answer the messages of a queue one after the other, each with the result of a function.

        A message is acknowledged when its answer is in the queue that it names; a message that names none, when the
        function returns. If the function fails, the error is logged, and the message returns to the queue later. The
        topic is served until the client is closed; ValueError if it already is.
        """
        if topic in self._served:
            raise ValueError(f"the topic {topic!r} is already served")
        consumer = self.consumer(topic)
        self._served.add(topic)
        self._loop.start(self._serve(consumer, function))

    async def ping(self, timeout: float | None = TIMEOUT) -> float:
        await self._waitUntilJoined(timeout)
        self._isUnacknowledged = False
        return await super().ping(timeout)

    async def close(self, timeout: float | None = TIMEOUT) -> None:
        """Wait until all ACKs have arrived, and end the connection; iterations end.

        The connection ends in any case. Closing again has no effect.

        :raises ConnectionLost: and TimeoutError: ACKs may be lost; their messages are delivered again.
        """
        for each in self._consumers:
            each.close()
        try:
            if self.state is not State.CLOSED and (self._isUnacknowledged or self._unsentAcks):
                await self.ping(timeout)
        finally:
            self._end(None)

    def _acknowledge(self, ids: Sequence[str]) -> None:
        if self.state is State.JOINED:
            self._isUnacknowledged = True
            self._connection.send(b"".join(map(self._conversation.ack, ids)))
        else:
            self._unsentAcks += ids

    async def _fetch(self, topic: str, most: int) -> list[Message]:
        asked = [self._conversation.consume(topic) for _ in range(most)]
        # Answers arrive in order, so the last one completes all.
        await self._ask((b"".join(data for data, _ in asked), asked[-1][1]), None, "")
        return [message for _, pending in asked if (message := pending.result()) is not None]

    async def _serve(self, consumer: "LoopConsumer", function: Function) -> None:
        try:
            async for message in consumer:
                try:
                    content = function(message)
                    if inspect.isawaitable(content):
                        content = await content
                    if message.reply_to:
                        messageId = str(uuid.uuid4())
                        await self._produce(Message(messageId, message.reply_to, content or "", message.correlation_id))
                except Exception:
                    if self.state is State.CLOSED:
                        return
                    _log.exception("The service of %s failed", consumer.topic)
                    consumer.leave(message)
        except ConnectionLost:
            return
        except ClientError:
            _log.exception("The service of %s ended", consumer.topic)

    def _startReplyLoop(self) -> None:
        self._newRequest.succeed(None)
        if not self._isReplyLoopRunning:
            self._isReplyLoopRunning = True
            self._loop.start(self._replyLoop())

    async def _replyLoop(self) -> None:
        pauses: Iterator[float] | None = None
        try:
            while self._replies:
                try:
                    reply = await self.consume(self._replyTo, None)
                except ConnectionLost as lost:
                    if self.state is State.CLOSED:
                        self._failReplies(lost)
                    continue
                if reply is None:
                    pauses = pauses or _REPLY_BACKOFF.pauses()
                    self._newRequest = Pending()
                    with suppress(TimeoutError):
                        await self._loop.wait(self._newRequest, next(pauses), "")
                        pauses = None
                    continue
                pauses = None
                self._acknowledge([reply.id])
                waiting = self._replies.get(reply.correlation_id)
                if waiting is not None:
                    waiting.succeed(reply)
        except ClientError as error:
            self._failReplies(error)
        finally:
            self._isReplyLoopRunning = False

    def _failReplies(self, error: ClientError) -> None:
        replies, self._replies = self._replies, {}
        for each in replies.values():
            each.fail(error)

    async def _greet(self) -> None:
        self._conversation = MiniConversation()
        try:
            await self._ask(self._conversation.ping(), self._attempt.timeout, "")
        except Answered as error:
            tls = self._settings.tls
            showsNone = tls is None or (isinstance(tls, Tls) and tls.certificate is None)
            if error.status == Status.UNAUTHORIZED and showsNone:
                raise Answered(error.status, f"{error.words}; {_NO_CREDENTIALS}") from None
            raise

    def _onJoined(self) -> None:
        ids, self._unsentAcks = self._unsentAcks, []
        if ids:
            self._acknowledge(ids)

    def _failPending(self, lost: ConnectionLost) -> None:
        if self.state is State.CLOSED:
            for each in self._consumers:
                each._ended(self._ending)
            self._failReplies(lost)


class LoopConsumer(Pulled[Message]):
    """The messages of a queue: iterate over it, or call :meth:`next`. Other consumers do not get prefetched ones."""

    def __init__(self, client: LoopMiniClient, topic: str, prefetch: int, idle: Backoff) -> None:
        super().__init__(client, prefetch, idle)
        self._client = client
        self.topic = topic
        client._consumers.append(self)

    def __repr__(self) -> str:
        return f"<Consumer of {self.topic}, {self.waiting} waiting>"

    async def _fetch(self, most: int) -> int:
        messages = await self._client._fetch(self.topic, most)
        self._fetched += messages
        return len(messages)

    def _acknowledge(self, messages: Sequence[Message]) -> None:
        self._client._acknowledge([each.id for each in messages])


class ConsumerWrapper(Wrapper[LoopConsumer]):
    """A consumer in a form that wraps it."""

    @property
    def topic(self) -> str:
        """The topic."""
        return self._inner.topic

    ack = called(LoopConsumer.ack)
    leave = called(LoopConsumer.leave)
