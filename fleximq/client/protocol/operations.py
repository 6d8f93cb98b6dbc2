"""The operations of a FlexiMQ client, coroutines written once for all forms; each form adds its connection.

The blocking form waits inside :meth:`Operations._await`, so that its coroutines end in their first step.
"""

import time
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, Generic, TypeVar

from fleximq.client.errors import Answered, ClientError, ConnectionLost, RequestFailed, SubscribeFailed
from fleximq.client.events import BROKER, Reply, Request
from fleximq.client.payloads import packed, severalOf
from fleximq.client.protocol.accepted_requests import Accepted
from fleximq.client.protocol.client_state import ClientState, PendingSubscription
from fleximq.client.protocol.completion import Pending
from fleximq.client.protocol.consumers import JobBox
from fleximq.client.protocol.conversation import Conversation
from fleximq.client.protocol.inbox import Box
from fleximq.client.protocol.publications import FrameMaker, chunksOf, headerFields
from fleximq.client.protocol.unconfirmed import Refusals
from fleximq.client.reconnecting import Reconnecting
from fleximq.client.settings import TIMEOUT, Start, State
from fleximq.client.topic_warnings import literalDoubt, warnOf
from fleximq.status import Status
from fleximq.values.patterns import doubtIn, mistakeIn

T = TypeVar("T")
#: The form's subscription to deliveries ..
Deliveries = TypeVar("Deliveries")
#: .. and to notifications.
Notifications = TypeVar("Notifications")


class Operations(Reconnecting, Generic[Deliveries, Notifications]):
    """The operations of one client."""

    _clientState: ClientState
    #: Guards the state of the client, where several threads use it.
    _lock: AbstractContextManager[Any] = nullcontext()
    #: Held until the SUB or UNSUB for a changed list of subscriptions is sent, so that they are sent in order.
    _subscribing: AbstractContextManager[Any] = nullcontext()

    def __repr__(self) -> str:
        return f"<Client {self.id} at {self.url}, {self.state.value}>"

    @property
    def id(self) -> int:
        """The id that the broker assigned to this connection; it changes when the client reconnects."""
        return self._clientState.conversation.id

    @property
    def state(self) -> State:
        return self._clientState.state or State.AWAY

    # -- of the form -------------------------------------------------------------------------------

    @abstractmethod
    def _post(self, size: int, make: FrameMaker) -> Awaitable[None]:
        """Send or buffer a message that has no answer."""

    @abstractmethod
    def _transmit(self, data: bytes, conversation: Conversation) -> None:
        """Send at once; on a lost connection, the results of the answers fail."""

    @abstractmethod
    def _sendReply(self, data: bytes, conversation: Conversation) -> Awaitable[None]:
        """Send an answer when the broker accepts more; drop it if the connection has ended."""

    @abstractmethod
    def _await(self, pending: Pending[T], timeout: float | None, what: str) -> Awaitable[T]:
        """Return the value or raise the error of ``pending``, or TimeoutError; its message names ``what``."""

    @abstractmethod
    def _subscription(self, box: Box) -> Any:
        """Return the form's subscription that reads from a box."""

    @abstractmethod
    def _unsubscribe(self, box: Box | JobBox) -> None:
        """Close a box, and unsubscribe if it was the last one of its name."""

    @abstractmethod
    def _resolved(self, value: Any) -> Awaitable[Any]:
        """Return the value, or the result of an awaitable one."""

    def _wakeReaders(self) -> None:
        """Wake readers of subscriptions that were closed; called under the lock."""

    def _startServing(self) -> None:
        """Start to answer requests, of which the first path is now served."""

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
        :param headers: further fields of the message's header; ValueError for ``topic`` and those of the arguments.
        :raises BufferFull: the broker is unreachable and the buffer is full.
        :raises ConnectionLost: the client is closed.
        """
        warnOf(literalDoubt(topic))
        payload = self._settings.codec.pack(value)
        fields = headerFields(headers, key=key, message_id=message_id, correlation_id=correlation_id, reply_to=reply_to)
        await self._post(len(payload), lambda conversation: conversation.publication(topic, payload, fields))

    async def publish_many(self, topic: str, values: Iterable[object]) -> None:
        """Publish several values at once, several times as fast as single ones; errors as :meth:`publish`.

        They are sent in chunks of about 1 MiB; if a value cannot be encoded, earlier chunks may have been sent. Raises
        TypeError for a single text or bytes.
        """
        warnOf(literalDoubt(topic))
        for size, make in chunksOf(topic, severalOf(values), self._settings.codec.pack):
            await self._post(size, make)

    async def notify(self, targets: int | str | Sequence[int | str], path: str, value: object = None) -> None:
        """Send a notification, which has no answer, to one or more clients.

        The next :meth:`flush` raises a refusal, e.g. 600 if there is no such client. Other errors as :meth:`publish`.

        :param targets: ids, and names that clients joined with: then all of that name.
        :param path: names the subject for the receivers.
        :param value: any value that the codec can encode.
        """
        several = [targets] if isinstance(targets, int | str) else list(targets)
        payload = self._settings.codec.pack(value)
        await self._post(len(payload), lambda conversation: conversation.notification(several, path, payload))

    async def broadcast(self, value: object = None) -> None:
        """Send a value to every other client; errors as :meth:`publish`."""
        payload = self._settings.codec.pack(value)
        await self._post(len(payload), lambda conversation: conversation.broadcast(payload))

    async def flush(self, timeout: float | None = TIMEOUT) -> None:
        """Wait until the broker has processed everything sent so far and, on durable topics, written it to disk.

        :raises PublishFailed: a message sent since the last flush was refused; raised by one of concurrent flushes.
        :raises ConnectionLost: the connection was lost since the last flush, so messages may be lost. Raised once in
            each thread, task or coroutine that has sent such messages, and once in the first other one that flushes.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        accounts = self._clientState.accounts
        self._checkLosses()
        await self._waitUntilJoined(timeout)
        self._checkLosses()
        sent = accounts.sent
        try:
            refused = await self._barrier(timeout, "a flush")
        except ConnectionLost:
            with self._lock:
                accounts.takeLoss()
            raise
        with self._lock:
            accounts.flushed = max(accounts.flushed, sent)
        refused.check()

    async def ping(self, timeout: float | None = TIMEOUT) -> float:
        await self._waitUntilJoined(timeout)
        begun = time.perf_counter()
        refused = await self._barrier(timeout, "the answer to a PING")
        took = time.perf_counter() - begun
        with self._lock:
            self._clientState.keepRefusals(refused)
        return took

    async def subscribe(
        self,
        topic: str,
        from_: Start | None = None,
        timeout: float | None = TIMEOUT,
        *,
        resume: bool = False,
        gaps: bool = False,
    ) -> Deliveries:
        """Subscribe to a topic or pattern, and wait until the broker has confirmed it.

        Every matching subscription receives a delivery, including replayed ones that another subscription requested.
        Subscriptions with a start must not have topics in common. After a reconnect, a subscription with ``from_`` or
        ``resume`` continues after its last offset; others miss messages, which is logged, and continue with new ones.

        :param from_: the start on durable topics: "first", "last", an offset, or ``{"time": milliseconds since 1970}``;
            deliveries then have an ``offset``.
        :param resume: without ``from_``: start with new messages of durable topics, but miss none. With permissions,
            this needs the right to read ``/journal/bounds``.
        :param gaps: without a start: deliver a :class:`~fleximq.client.events.Gap` where messages may be missing.
        :raises SubscribeFailed: the broker refused, e.g. with 603, or with 404 if the offset was removed.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        :raises ValueError: it has a start and overlaps another subscription with a start, or has the same name as
            another one and either has a start; or it has wildcards of NATS or MQTT.
        """
        mistake = mistakeIn(topic)
        if mistake is not None:
            raise ValueError(mistake)
        if not isinstance(from_, str | int | Mapping | None):
            raise TypeError(f"from_ is {from_!r}, but must be 'first', 'last', an offset, or {{'time': milliseconds}}")
        warnOf(doubtIn(topic))
        if resume and from_ is None:
            from_ = await self._journalEnd(topic, timeout)
        make = partial(self._clientState.newSubscription, topic, from_, gaps)
        return self._subscription(await self._subscribed(make, timeout, f"the subscription to {topic}"))  # type: ignore[no-any-return]

    async def _subscribed(self, make: Callable[[], PendingSubscription], timeout: float | None, what: str) -> Any:
        """Send a SUB, wait until the broker has confirmed it, and return its box."""
        await self._waitUntilJoined(timeout)
        # After this barrier, no deliveries of an earlier subscription are in transit.
        refused = await self._barrier(timeout, what)
        with self._lock:
            self._clientState.keepRefusals(refused)
        with self._subscribing:
            with self._lock:
                made = make()
                conversation = self._clientState.conversation
            self._transmit(made.data, conversation)
        try:
            await self._await(made.after, timeout, what)
        except BaseException:
            with self._lock:
                self._clientState.detachBarrier(made.before)
                self._clientState.detachBarrier(made.after)
            self._unsubscribe(made.box)
            raise
        with self._lock:
            self._clientState.confirmSubscription(made)
        return made.box

    async def _journalEnd(self, topic: str, timeout: float | None) -> int:
        try:
            return int((await self.ask("/journal/bounds", {"topics": False}, timeout))["end"])
        except RequestFailed as error:
            raise SubscribeFailed(error.status, error.words, topic) from None

    def notifications(self) -> Notifications:
        """Return a subscription to the notifications and broadcasts that this client receives from now on."""
        with self._lock:
            box = self._clientState.inbox.openDirect()
        return self._subscription(box)  # type: ignore[no-any-return]

    async def request(self, target: int | str, path: str, value: object = None, timeout: float | None = TIMEOUT) -> Any:
        """Send a request to another client and return the value of its answer.

        :param target: the client's id, or the ``name`` that one or more clients joined with: then the least busy one.
        :raises RequestFailed: the answer is an error, or the broker could not reach the client.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        :raises ConnectionLost: the connection ended; the request may have arrived.
        :raises ValueError: the target is a path, or the answer cannot be decoded.
        """
        if isinstance(target, str) and target.startswith("/"):
            raise ValueError(f"{target!r} is a path: the target, the id or name of a client, comes first")
        reply = await self._request(target, path, self._settings.codec.pack(value), timeout)
        return self._clientState.valueOf(path, reply)

    async def ask(self, path: str, value: object = None, timeout: float | None = TIMEOUT) -> Any:
        """Send a request to the broker itself, e.g. ``/broker/about``; errors as for :meth:`request`."""
        return self._clientState.valueOf(path, await self._request(BROKER, path, packed(value), timeout))

    def serve(self, path: str, function: Callable[[Request], Any]) -> None:
        """Answer requests to a path with the result of a function; on an event loop, it may be awaitable.

        If it raises :class:`~fleximq.client.errors.Answered`, that status and text are the answer; other exceptions are
        logged and answered with 500. The path is served until the client is closed, also after a reconnect. The
        functions of a blocking client run in one thread of its own, or as many as ``threads`` says; on an event loop up
        to 1,000 run at once. They start only while the broker accepts answers. While unanswered requests take more
        memory than ``prefetch``, and more than 1 MiB, further ones are answered with 503.

        :raises ValueError: the path is already served; or TypeError: the function is none.
        """
        if not callable(function):
            raise TypeError(f"{path} needs a function that answers requests, not {function!r}")
        with self._lock:
            served = self._clientState.served
            if path in served:
                raise ValueError(f"the path {path!r} is already served")
            served[path] = function
            if len(served) == 1:
                self._startServing()

    async def _answer(self, accepted: Accepted) -> None:
        conversation = self._clientState.conversation
        try:
            data = await self._reply(accepted.request, conversation)
            if conversation is self._clientState.conversation and self._clientState.isAdmitted:
                await self._sendReply(data, conversation)
        finally:
            with self._lock:
                self._clientState.requests.answered(accepted)

    async def _reply(self, request: Request, conversation: Conversation) -> bytes:
        try:
            value = await self._resolved(self._clientState.served[request.path](request))
            return conversation.reply(request, self._settings.codec.pack(value))
        except Answered as error:
            return conversation.reply(request, packed(error.words), error.status)
        except Exception:
            self._log.exception("The service of %s failed", request.path)
            return conversation.reply(request, packed("the service failed"), Status.INTERNAL_SERVER_ERROR)

    async def close(self, timeout: float | None = TIMEOUT) -> None:
        """Flush messages sent since the last flush, and end the connection; iterations over subscriptions end.

        The connection ends even if the flush fails. Closing again has no effect. Errors as :meth:`flush`.
        """
        try:
            with self._lock:
                self._clientState.inbox.closeAll()
                self._clientState.consumers.closeAll()
                self._wakeReaders()
            if self._clientState.accounts.needsFlush:
                await self.flush(timeout)
        finally:
            self._end(None)

    async def _request(self, target: int | str, path: str, payload: bytes, timeout: float | None) -> Reply:
        clientState = self._clientState
        await self._waitUntilJoined(timeout)
        with self._lock:
            data, requestId, pending = clientState.request(target, path, payload)
            conversation = clientState.conversation
        try:
            self._transmit(data, conversation)
            reply = await self._await(pending, timeout, f"the answer to {path}")
        finally:
            with self._lock:
                clientState.forgetRequest(requestId)
        if reply.status == Status.PAYLOAD_TOO_LARGE and reply.sender == BROKER:
            # The broker ends the connection after a message over its limit: the next call needs another one.
            with suppress(ClientError, TimeoutError):
                await self.ping(timeout)
        return reply

    async def _barrier(self, timeout: float | None, what: str) -> Refusals:
        """Wait until everything sent is processed, and return the refusals."""
        with self._lock:
            data, pending = self._clientState.barrier()
            conversation = self._clientState.conversation
        try:
            self._transmit(data, conversation)
            return await self._await(pending, timeout, what)
        except BaseException:
            # The caller has stopped waiting, so the next flush reports the refusals.
            with self._lock:
                self._clientState.detachBarrier(pending)
            raise

    async def _waitUntilJoined(self, timeout: float | None) -> None:
        if self._clientState.state is State.JOINED:
            return
        with self._lock:
            pending = self._clientState.whenJoined()
        try:
            await self._await(pending, timeout, "a connection")
        finally:
            with self._lock:
                self._clientState.cancelWait(pending)

    def _checkLosses(self) -> None:
        with self._lock:
            self._clientState.checkLosses()
