"""The FlexiMQ client for any event loop, shared by the forms for asyncio and Twisted.

A client is used from the loop's own thread. Everything published in one turn of the loop is written at its end.
"""

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from fleximq.client.contexts import MessageIterator
from fleximq.client.errors import Answered, ClientError, ConnectionLost, JoinRefused
from fleximq.client.events import Delivery, Notification, Request
from fleximq.client.loops.connection import DRAIN_BYTES, Callbacks, Connection
from fleximq.client.loops.interfaces import Cancellable, Loop
from fleximq.client.payloads import packed
from fleximq.client.protocol.client_state import (
    ClientState,
    FrameMaker,
    chunksOf,
    headerFields,
    isTransient,
    publicationOf,
)
from fleximq.client.protocol.completion import Pending
from fleximq.client.protocol.conversation import BROKER, conversationOn
from fleximq.client.protocol.inbox import Box
from fleximq.client.protocol.refusals import Refusals
from fleximq.client.protocol.unconfirmed import ContextAccounts
from fleximq.client.settings import TIMEOUT, ClientSettings, Start, State
from fleximq.errors import BrokerError, SettingError
from fleximq.values.urls import Url

_log = logging.getLogger("fleximq.client.awaited")
#: Answers requests to a path; returns the value, or an awaitable of it.
Function = Callable[[Request], Any]
M = TypeVar("M", bound=Delivery | Notification)


class LoopClient:
    """A connection to a broker; it reconnects by itself.

    Values are of the types that MessagePack, or the ``codec``, can encode; others raise TypeError, ValueError or
    OverflowError before they are sent. While the broker is unreachable, publications are buffered up to ``buffer``
    bytes. When the connection is lost, calls that wait for an answer raise
    :class:`~fleximq.client.errors.ConnectionLost`.
    """

    def __init__(self, loop: Loop, url: Url, settings: ClientSettings) -> None:
        self._loop = loop
        self._url = url
        self._settings = settings
        holder = ContextAccounts(loop.currentTask)
        self._connection = Connection(loop, Callbacks(self._connected, self._received, self._lose), self._framed)
        self._clientState = ClientState(
            settings, self._connection.send, self._relieved, self._stateChanged, self._requested, holder
        )
        self._functions: dict[str, Function] = {}
        self._paused = False
        self._keepAliveTimer: Cancellable | None = None
        self._reconnecting: Cancellable | None = None
        self._tasks: set[Cancellable] = set()

    async def open(self) -> Self:
        """Connect and join for the first time.

        :raises ConnectionLost: no FlexiMQ broker answers there.
        :raises Untrusted: one side does not trust the other's certificate.
        :raises JoinRefused: the broker refused to admit the client.
        """
        try:
            await self._join()
        except BaseException as error:
            self._end(error if isinstance(error, Exception) else None)
            raise
        return self

    def __repr__(self) -> str:
        return f"<Client {self.id} at {self.url}, {self.state.value}>"

    @property
    def id(self) -> int:
        """The id that the broker assigned to this connection; it changes when the client reconnects."""
        return self._clientState.conversation.id

    @property
    def url(self) -> str:
        """The broker's URL without its query, which may contain a secret."""
        return self._url.withoutQuery

    @property
    def state(self) -> State:
        """The state of the connection."""
        return self._clientState.state or State.AWAY

    # -- operations --------------------------------------------------------------------------------

    async def publish(
        self,
        topic: str,
        value: object,
        /,
        *,
        key: str | bytes | None = None,
        message_id: str | None = None,
        correlation_id: str | None = None,
        reply_to: str | None = None,
        headers: Mapping[str, Any] | None = None,
    ) -> None:
        """Publish a value. Waits only while the broker accepts no more; :meth:`flush` waits until it is processed.

        :param key: the key by which the pipeline groups messages.
        :param message_id: identifies the message; on durable topics the broker drops a repeated one.
        :param correlation_id: and ``reply_to``: for requests to MiniMQ services.
        :param headers: further fields of the message's header.
        :raises ValueError: ``headers`` contains ``topic``, or a field that is also given as an argument.
        :raises BufferFull: the broker is unreachable and the buffer is full.
        :raises ConnectionLost: the client is closed.
        """
        payload = self._settings.codec.pack(value)
        fields = headerFields(key, message_id, correlation_id, reply_to, headers)
        await self._post(len(payload), publicationOf(topic, payload, fields))

    async def publish_many(self, topic: str, values: Iterable[object]) -> None:
        """Publish several values at once, several times as fast as single ones; errors as :meth:`publish`."""
        for size, make in chunksOf(topic, values, self._settings.codec.pack):
            await self._post(size, make)

    async def notify(self, targets: int | Sequence[int], path: str, value: object = None) -> None:
        """Send a notification, which has no answer, to one or more clients."""
        several = [targets] if isinstance(targets, int) else list(targets)
        payload = self._settings.codec.pack(value)
        await self._post(len(payload), lambda conversation: conversation.notification(several, path, payload))

    async def broadcast(self, value: object = None) -> None:
        """Send a value to every other client."""
        payload = self._settings.codec.pack(value)
        await self._post(len(payload), lambda conversation: conversation.broadcast(payload))

    async def flush(self, timeout: float | None = TIMEOUT) -> None:
        """Wait until the broker has processed everything sent so far and, on durable topics, written it to disk.

        :raises PublishFailed: a message sent since the last flush was refused; raised by one of concurrent flushes.
        :raises ConnectionLost: the connection was lost since the last flush, so messages may be lost. Raised once in
            each task that has sent such messages, and once in the first other task that flushes.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        clientState, accounts = self._clientState, self._clientState.accounts
        clientState.checkLosses()
        await self._waitUntilJoined(timeout)
        clientState.checkLosses()
        sent = accounts.sent
        try:
            refused = await self._barrier(timeout, "a flush")
        except ConnectionLost:
            accounts.takeLoss()
            raise
        accounts.flushed = max(accounts.flushed, sent)
        refused.check()

    async def _waitUntilJoined(self, timeout: float | None) -> None:
        pending = self._clientState.whenJoined()
        try:
            await self._loop.wait(pending, timeout, "a connection")
        finally:
            self._clientState.cancelWait(pending)

    def claim(self) -> None:
        """Attribute the next publication to the caller, even if it is sent in a copy of the caller's context."""
        self._clientState.accounts.current()

    async def ping(self, timeout: float | None = TIMEOUT) -> float:
        """Return the round-trip time in seconds, which includes processing everything sent before."""
        await self._waitUntilJoined(timeout)
        begun = time.perf_counter()
        refused = await self._barrier(timeout, "the answer to a PING")
        took = time.perf_counter() - begun
        self._clientState.keepRefusals(refused)
        return took

    async def request(self, target: int, path: str, value: object = None, timeout: float | None = TIMEOUT) -> Any:
        """Send a request to another client and return the value of its answer.

        :param target: the client's id.
        :raises RequestFailed: the answer is an error, or the broker could not reach the client.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        :raises ConnectionLost: the connection ended; the request may have arrived.
        :raises ValueError: the answer cannot be decoded.
        """
        return await self._request(target, path, self._settings.codec.pack(value), timeout)

    async def ask(self, path: str, value: object = None, timeout: float | None = TIMEOUT) -> Any:
        """Send a request to the broker itself, e.g. ``/broker/about``; errors as for :meth:`request`."""
        return await self._request(BROKER, path, packed(value), timeout)

    async def _request(self, target: int, path: str, payload: bytes, timeout: float | None) -> Any:
        clientState = self._clientState
        if clientState.state is not State.JOINED:
            await self._waitUntilJoined(timeout)
        data, id, pending = clientState.request(target, path, payload)
        try:
            self._sendNow(data)
            reply = await self._loop.wait(pending, timeout, f"the answer to {path}")
        finally:
            clientState.forgetRequest(id)
        return clientState.valueOf(path, reply)

    async def subscribe(
        self, topic: str, from_: Start | None = None, timeout: float | None = TIMEOUT
    ) -> "LoopSubscription[Delivery]":
        """Subscribe to a topic or pattern, and wait until the broker has confirmed it.

        After a reconnect, a subscription with ``from_`` continues after its last offset; others continue with new
        messages.

        :param from_: the start on durable topics: "first", "last", an offset, or ``{"time": milliseconds since 1970}``;
            deliveries then have an ``offset``.
        :raises SubscribeFailed: the broker refused, e.g. with 603, or with 404 if the offset was removed.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        :raises ValueError: it has a start and overlaps another subscription with a start, or it has the same name as
            another one and either has a start.
        """
        clientState, what = self._clientState, f"the subscription to {topic}"
        await self._waitUntilJoined(timeout)
        # After this barrier, no deliveries of an earlier subscription are in transit.
        clientState.keepRefusals(await self._barrier(timeout, what))
        made = clientState.newSubscription(topic, from_)
        try:
            self._sendNow(made.data)
            await self._loop.wait(made.after, timeout, what)
        except BaseException:
            clientState.abandonSubscription(made)
            self._unsubscribe(made.box)
            raise
        clientState.confirmSubscription(made)
        return LoopSubscription(self, made.box)

    def notifications(self) -> "LoopSubscription[Notification]":
        """Return a subscription to the notifications and broadcasts that this client receives from now on."""
        return LoopSubscription(self, self._clientState.inbox.openDirect())

    def serve(self, path: str, function: Function) -> None:
        """Answer requests to a path with the result of a function, which may be a coroutine function.

        If it raises :class:`~fleximq.client.errors.Answered`, that status and text are the answer; other exceptions are
        logged and answered with 500. The path is served until the client is closed, also after a reconnect.

        :raises ValueError: the path is already served.
        """
        if path in self._functions:
            raise ValueError(f"the path {path!r} is already served")
        self._functions[path] = function
        self._clientState.served.add(path)

    async def close(self, timeout: float | None = TIMEOUT) -> None:
        """Flush messages sent since the last flush, and end the connection; iterations over subscriptions end.

        The connection ends even if the flush fails. Closing again has no effect.

        :raises PublishFailed: and TimeoutError, as :meth:`flush`.
        :raises ConnectionLost: the connection ended before all messages were confirmed.
        """
        self._clientState.inbox.closeAll()
        try:
            if self._clientState.accounts.needsFlush:
                await self.flush(timeout)
        finally:
            self._end(None)

    def hang_up(self) -> None:
        """End the connection at once, without a flush."""
        self._end(None)

    # -- sending -----------------------------------------------------------------------------------

    async def _post(self, size: int, make: FrameMaker) -> None:
        """Send or buffer a message that has no answer."""
        clientState = self._clientState
        if clientState.state is not State.JOINED:
            clientState.bufferUntilJoined(size, make)
            return
        connection = self._connection
        connection.send(make(clientState.conversation))
        clientState.accounts.countSent(clientState.accounts.current())
        if connection.waiting >= DRAIN_BYTES:
            await connection.drain()

    def _sendNow(self, data: bytes) -> None:
        self._connection.sendNow(data)
        if self._paused:
            self._resume()

    def _framed(self, data: bytes) -> bytes:
        """Return the bytes to write: those due on the connection itself, then the framed messages."""
        conversation = self._clientState.conversation
        framed = conversation.framed(data) if data else data
        if conversation.due:
            framed = b"".join((*conversation.due, framed))
            conversation.due.clear()
        return framed

    # -- waiting -----------------------------------------------------------------------------------

    async def _barrier(self, timeout: float | None, what: str) -> Refusals:
        """Wait until everything sent is processed, and return the refusals."""
        data, pending = self._clientState.barrier()
        self._sendNow(data)
        return await self._awaitBarrier(pending, timeout, what)

    async def _awaitBarrier(self, pending: Pending[Refusals], timeout: float | None, what: str) -> Refusals:
        try:
            return await self._loop.wait(pending, timeout, what)
        except BaseException:
            # The caller has stopped waiting, so the next flush reports the refusals.
            self._clientState.detachBarrier(pending)
            raise

    # -- the line ----------------------------------------------------------------------------------

    async def _join(self) -> None:
        settings = self._settings
        conversation = conversationOn(self._url, settings.codec.unpack)
        joined = self._clientState.begin(conversation)
        try:
            await self._loop.dial(self._url, settings, self._connection.listen())
            await self._loop.wait(joined, settings.timeout, "")
        except TimeoutError:
            raise ConnectionLost(f"the broker did not answer within {settings.timeout:g} seconds") from None
        finally:
            if not joined.done or joined.error is not None:
                self._connection.drop()
        if self._keepAliveTimer is None and settings.keep_alive is not None:
            self._keepAliveTimer = self._loop.later(settings.keep_alive, self._onKeepAlive)

    def _onKeepAlive(self) -> None:
        assert self._settings.keep_alive is not None
        self._keepAliveTimer = self._loop.later(self._settings.keep_alive, self._onKeepAlive)
        if not self._clientState.tick(self._paused):
            self._lose(ConnectionLost("the broker was silent for too long"))

    def _connected(self) -> None:
        """Handle the connection of the current conversation."""
        self._paused = False
        self._connection.writePending()

    def _received(self, data: bytes) -> None:
        """Handle received bytes."""
        clientState = self._clientState
        try:
            clientState.dataReceived(data)
        except BrokerError as error:
            self._lose(ConnectionLost(f"the received bytes are not FlexiMQ: {error}"))
            return
        if clientState.conversation.due:
            self._connection.writePending()
        if (
            not self._paused
            and clientState.inbox.full
            and not clientState.needsAnswers
            and self._connection.transport is not None
        ):
            self._paused = True
            self._connection.transport.pauseReading()

    def _relieved(self) -> None:
        if self._paused:
            self._resume()

    def _resume(self) -> None:
        self._paused = False
        if self._connection.transport is not None:
            self._connection.transport.resumeReading()

    def _lose(self, lost: ConnectionLost) -> None:
        """Drop the connection, and reconnect unless that is disabled."""
        clientState = self._clientState
        if clientState.state is State.CLOSED:
            return
        wasJoined = clientState.state is State.JOINED
        self._connection.drop()
        if wasJoined and (self._settings.reconnect is None or self._url.scheme == "stdio"):
            self._end(lost)
            return
        clientState.lose(lost)
        if wasJoined:
            self._reconnecting = self._loop.start(self._reconnect(lost))

    async def _reconnect(self, lost: Exception) -> None:
        assert self._settings.reconnect is not None
        why = lost
        for pause in self._settings.reconnect.pauses():
            await self._loop.sleep(pause)
            if self._clientState.state is not State.AWAY:
                return
            try:
                await self._join()
                return
            except (ConnectionLost, JoinRefused, SettingError) as error:
                if self._reconnecting is None:
                    return  # The client was closed meanwhile, and some loops raise an error then.
                why = error
                if not isTransient(error):
                    break
            except Exception as error:
                if self._reconnecting is None:
                    return
                _log.exception("Reconnecting failed")
                why = error
                break
        self._end(why)

    def _end(self, why: Exception | None) -> None:
        """Close for good."""
        returning, self._reconnecting = self._reconnecting, None
        for each in (self._keepAliveTimer, returning if why is None else None, *self._tasks):
            if each is not None:
                with suppress(Exception):
                    each.cancel()
        self._keepAliveTimer = None
        self._connection.end()
        self._clientState.end(why)

    def _stateChanged(self, state: State, why: Exception | None) -> None:
        if self._settings.on_state is not None:
            try:
                self._settings.on_state(state, why)
            except Exception:
                _log.exception("The callback on_state failed")

    # -- inside ------------------------------------------------------------------------------------

    def _unsubscribe(self, box: Box) -> None:
        if self._clientState.inbox.close(box) and self._clientState.state is State.JOINED:
            self._connection.send(self._clientState.conversation.unsubscription(box.topic))

    def _requested(self, request: Request) -> None:
        running: list[Cancellable] = []
        isOver = False

        async def answer() -> None:
            nonlocal isOver
            await self._answer(request)
            isOver = True
            self._tasks.difference_update(running)

        running.append(self._loop.start(answer()))
        if not isOver:
            self._tasks.update(running)

    async def _answer(self, request: Request) -> None:
        conversation = self._clientState.conversation
        try:
            value = self._functions[request.path](request)
            if inspect.isawaitable(value):
                value = await value
            data = self._clientState.answer(request, value)
        except Answered as error:
            data = self._clientState.failure(request, error)
        except Exception as error:
            _log.exception("The service of %s failed", request.path)
            data = self._clientState.failure(request, error)
        if conversation is self._clientState.conversation and self._clientState.state is State.JOINED:
            self._sendNow(data)


class LoopSubscription(MessageIterator[M]):
    """The messages of a topic or pattern, in order: iterate over it, or call :meth:`next`.

    While the subscriptions of a client hold more than ``prefetch`` unread bytes, the client stops reading, unless a
    call waits for an answer; the broker then treats it as a slow consumer.
    """

    def __init__(self, client: LoopClient, box: Box) -> None:
        self._client = client
        self._take = client._clientState.inbox.take
        self._box = box
        self._waiters: list[Pending[None]] = []

    def __repr__(self) -> str:
        return f"<Subscription to {self._box.topic or 'notifications'}, {self.waiting} waiting>"

    @property
    def topic(self) -> str:
        """The topic or pattern; "" for notifications."""
        return self._box.topic

    @property
    def waiting(self) -> int:
        """The number of unread deliveries."""
        return len(self._box.waiting)

    async def __anext__(self) -> M:
        """Return the next delivery, waiting without a limit; the iteration ends when this or the client is closed.

        Raises the errors of :meth:`next`.
        """
        if self._box.waiting:
            return self._take(self._box)  # type: ignore[no-any-return]
        return await super().__anext__()

    async def next(self, timeout: float | None = None) -> M | None:
        """Return the next delivery; None after ``timeout`` seconds without one, or if this is closed.

        Errors are raised after the last unread delivery was returned.

        :raises ConnectionLost: the connection ended, and the client will not reconnect.
        :raises SubscribeFailed: the broker ended the subscription, since it cannot deliver the next message.
        :raises Overrun: too many deliveries were unread.
        """
        box = self._box
        while not box.waiting:
            if box.end is not None:
                if isinstance(box.end, ClientError):
                    raise box.end
                return None
            pending: Pending[None] = Pending()
            self._waiters.append(pending)
            box.onNews = self._told
            try:
                await self._client._loop.wait(pending, timeout, "a delivery")
            except TimeoutError:
                return None
            finally:
                with suppress(ValueError):
                    self._waiters.remove(pending)
        return self._take(box)  # type: ignore[no-any-return]

    def _told(self) -> None:
        self._box.onNews = None
        waiters, self._waiters = self._waiters, []
        for each in waiters:
            each.succeed(None)

    def close(self) -> None:
        """Unsubscribe; unread deliveries can still be read."""
        self._client._unsubscribe(self._box)
