"""The client for programs without an event loop: scripts, notebooks, worker processes. Uses plain sockets.

::

    with connect("tcp://localhost:7890") as client:
        client.publish("news", {"rain": True})

Threads may share a client. A waiting thread reads from the socket for all threads. A background thread wakes up once a
second to reconnect and to ping a silent broker; it is not started without ``reconnect`` and ``keep_alive``.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from ssl import SSLContext
from typing import Any, TypeVar

from fleximq.client.backoff import Backoff
from fleximq.client.blocking import fork_safety
from fleximq.client.blocking.shared_connection import SharedConnection
from fleximq.client.blocking.subscription import Subscription
from fleximq.client.contexts import ClosedOnExit
from fleximq.client.errors import Answered, ConnectionLost, JoinRefused
from fleximq.client.events import Delivery, Notification, Reply, Request
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
from fleximq.client.settings import (
    BACKOFF,
    BUFFER_BYTES,
    KEEP_ALIVE,
    MESSAGEPACK,
    PREFETCH_BYTES,
    TIMEOUT,
    ClientSettings,
    Codec,
    Start,
    State,
    Tls,
    Watcher,
)
from fleximq.client.sockets import checkTls, dial
from fleximq.values.urls import Url

__all__ = ["Client", "Start", "Subscription", "connect"]
_log = logging.getLogger("fleximq.client.blocking")
#: Seconds between two checks of the background thread.
_CHECK_SECONDS = 1.0

T = TypeVar("T")


def connect(
    url: str = "tcp://localhost:7890",
    *,
    credentials: Mapping[str, str] | None = None,
    name: str | None = None,
    timeout: float = TIMEOUT,
    tls: Tls | SSLContext | None = None,
    reconnect: Backoff | None = BACKOFF,
    buffer: int = BUFFER_BYTES,
    prefetch: int = PREFETCH_BYTES,
    keep_alive: float | None = KEEP_ALIVE,
    codec: Codec = MESSAGEPACK,
    on_state: Watcher | None = None,
    threads: int = 1,
) -> "Client":
    """Connect and join. Use the client in a ``with`` statement, or close it.

    The keyword arguments are described in :class:`~fleximq.client.settings.ClientSettings`.

    :param url: ``tcp://``, ``tls://``, ``ipc://``, ``ws://``, ``wss://``, or ``stdio://`` in a program that the broker
        has started.
    :raises SettingError: the URL or a setting is invalid.
    :raises ConnectionLost: no FlexiMQ broker answers there.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises JoinRefused: the broker refused to admit the client.
    """
    settings = ClientSettings(
        credentials=credentials,
        name=name,
        timeout=timeout,
        tls=tls,
        reconnect=reconnect,
        buffer=buffer,
        prefetch=prefetch,
        keep_alive=keep_alive,
        codec=codec,
        on_state=on_state,
        threads=threads,
    )
    return Client(Url.parse(url), settings)


class Client(ClosedOnExit):
    """A connection to a broker, made by :func:`connect`; it reconnects by itself.

    Values are of the types that MessagePack, or the ``codec``, can encode; others raise TypeError, ValueError or
    OverflowError before they are sent. While the broker is unreachable, publications are buffered up to ``buffer``
    bytes. When the connection is lost, calls that wait for an answer raise
    :class:`~fleximq.client.errors.ConnectionLost`.
    """

    def __init__(self, url: Url, settings: ClientSettings) -> None:
        checkTls(url, settings)
        self._url = url
        self._settings = settings
        self._context = settings.context() if url.isSecure else None
        self._clientState = ClientState(
            settings, self._sendLater, lambda: self._connection.wake(), self._stateChanged, self._requested
        )
        self._connection = SharedConnection(
            None,
            self._clientState.conversation,
            self._clientState.received,
            lambda: self._clientState.inbox.full,
            self._lost,
            self._clientState.delivered,
        )
        self._subscribing = threading.Lock()
        self._functions: dict[str, Callable[[Request], Any]] = {}
        self._requests: deque[Request] = deque()
        self._states: deque[tuple[State, Exception | None]] = deque()
        self._reconnects = settings.reconnect is not None and url.scheme != "stdio"
        self._alarm = threading.Event()
        self._closing = threading.Event()
        try:
            self._join()
        except BaseException:
            self.hang_up()
            raise
        fork_safety.watch(self, Client._forking, Client._leaveToParent)
        if self._reconnects or settings.keep_alive is not None:
            threading.Thread(target=self._maintain, name="fleximq-keeper", daemon=True).start()

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

    def publish(
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
        """Publish a value. Returns when it is handed to the network; :meth:`flush` waits until it is processed.

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
        self._post(len(payload), publicationOf(topic, payload, fields))

    def publish_many(self, topic: str, values: Iterable[object]) -> None:
        """Publish several values at once, several times as fast as single ones; errors as :meth:`publish`.

        They are sent in chunks of about 1 MiB; if a value cannot be encoded, earlier chunks may have been sent.
        """
        for size, make in chunksOf(topic, values, self._settings.codec.pack):
            self._post(size, make)

    def notify(self, targets: int | Sequence[int], path: str, value: object = None) -> None:
        """Send a notification, which has no answer, to one or more clients."""
        several = [targets] if isinstance(targets, int) else list(targets)
        payload = self._settings.codec.pack(value)
        self._post(len(payload), lambda conversation: conversation.notification(several, path, payload))

    def broadcast(self, value: object = None) -> None:
        """Send a value to every other client."""
        payload = self._settings.codec.pack(value)
        self._post(len(payload), lambda conversation: conversation.broadcast(payload))

    def flush(self, timeout: float | None = TIMEOUT) -> None:
        """Wait until the broker has processed everything sent so far and, on durable topics, written it to disk.

        :raises PublishFailed: a message sent since the last flush was refused; raised in one thread.
        :raises ConnectionLost: the connection was lost since the last flush, so messages may be lost. Raised once in
            each thread that has sent such messages, and once in the first other thread that flushes.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        accounts = self._clientState.accounts
        self._checkLosses()
        self._waitUntilJoined(timeout)
        self._checkLosses()
        sent = accounts.sent
        try:
            refused = self._barrier(timeout, "a flush")
        except ConnectionLost:
            with self._connection.lock:
                accounts.takeLoss()
            raise
        with self._connection.lock:
            accounts.flushed = max(accounts.flushed, sent)
        refused.check()

    def ping(self, timeout: float | None = TIMEOUT) -> float:
        """Return the round-trip time in seconds, which includes processing everything sent before."""
        self._waitUntilJoined(timeout)
        begun = time.perf_counter()
        refused = self._barrier(timeout, "the answer to a PING")
        took = time.perf_counter() - begun
        with self._connection.lock:
            self._clientState.keepRefusals(refused)
        return took

    def subscribe(
        self, topic: str, from_: Start | None = None, timeout: float | None = TIMEOUT
    ) -> Subscription[Delivery]:
        """Subscribe to a topic or pattern, and wait until the broker has confirmed it.

        Every matching subscription receives a delivery, including replayed ones that another subscription requested.
        Subscriptions with a start must not have topics in common. After a reconnect, a subscription with ``from_``
        continues after its last offset; others continue with new messages.

        :param from_: the start on durable topics: "first", "last", an offset, or ``{"time": milliseconds since 1970}``;
            deliveries then have an ``offset``.
        :raises SubscribeFailed: the broker refused, e.g. with 603, or with 404 if the offset was removed.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        :raises ValueError: it has a start and overlaps another subscription with a start, or it has the same name as
            another one and either has a start.
        """
        what = f"the subscription to {topic}"
        self._waitUntilJoined(timeout)
        # After this barrier, no deliveries of an earlier subscription are in transit.
        refused = self._barrier(timeout, what)
        with self._connection.lock:
            self._clientState.keepRefusals(refused)
        with self._subscribing:
            with self._connection.lock:
                made = self._clientState.newSubscription(topic, from_)
                conversation = self._clientState.conversation
            with suppress(ConnectionLost):
                self._connection.send(made.data, conversation)
        try:
            self._await(made.after, timeout, what)
        except BaseException:
            with self._connection.lock:
                self._clientState.abandonSubscription(made)
            self._unsubscribe(made.box)
            raise
        with self._connection.lock:
            self._clientState.confirmSubscription(made)
        return Subscription(self._connection, self._clientState.inbox, made.box, self._unsubscribe)

    def notifications(self) -> Subscription[Notification]:
        """Return a subscription to the notifications and broadcasts that this client receives from now on."""
        with self._connection.lock:
            box = self._clientState.inbox.openDirect()
        return Subscription(self._connection, self._clientState.inbox, box, self._unsubscribe)

    def request(self, target: int, path: str, value: object = None, timeout: float | None = TIMEOUT) -> Any:
        """Send a request to another client and return the value of its answer.

        :param target: the client's id.
        :raises RequestFailed: the answer is an error, or the broker could not reach the client.
        :raises TimeoutError: no answer within ``timeout`` seconds.
        :raises ConnectionLost: the connection ended; the request may have arrived.
        :raises ValueError: the answer cannot be decoded.
        """
        payload = self._settings.codec.pack(value)
        return self._clientState.valueOf(path, self._request(target, path, payload, timeout))

    def ask(self, path: str, value: object = None, timeout: float | None = TIMEOUT) -> Any:
        """Send a request to the broker itself, e.g. ``/broker/about``; errors as for :meth:`request`."""
        return self._clientState.valueOf(path, self._request(BROKER, path, packed(value), timeout))

    def ask_packed(self, path: str, value: object = None, timeout: float | None = TIMEOUT) -> bytes | memoryview:
        """Like :meth:`ask`, but return the encoded payload, a MessagePack value; for large answers."""
        return self._clientState.payloadOf(path, self._request(BROKER, path, packed(value), timeout))

    def serve(self, path: str, function: Callable[[Request], Any]) -> None:
        """Answer requests to a path with the return value of a function, which runs in a thread of the client.

        If it raises :class:`~fleximq.client.errors.Answered`, that status and text are the answer; other exceptions are
        logged and answered with 500. The path is served until the client is closed, also after a reconnect. The
        functions of a client share one thread, or as many as ``threads`` says.

        :raises ValueError: the path is already served.
        """
        with self._connection.lock:
            if path in self._functions:
                raise ValueError(f"the path {path!r} is already served")
            self._functions[path] = function
            self._clientState.served.add(path)
            if len(self._functions) == 1:
                for _ in range(self._settings.threads):
                    threading.Thread(target=self._serve, name="fleximq-server", daemon=True).start()

    def close(self, timeout: float | None = TIMEOUT) -> None:
        """Flush messages sent since the last flush, and end the connection; iterations over subscriptions end.

        The connection ends even if the flush fails. Closing again has no effect.

        :raises PublishFailed: as :meth:`flush`.
        :raises TimeoutError: as :meth:`flush`.
        :raises ConnectionLost: the connection ended before all messages were confirmed.
        """
        try:
            with self._connection.lock:
                self._clientState.inbox.closeAll()
                self._connection.wake()
            if self._clientState.accounts.needsFlush:
                self.flush(timeout)
        finally:
            self.hang_up()

    def hang_up(self) -> None:
        """End the connection at once, without a flush."""
        self._end(None)

    # -- forks -------------------------------------------------------------------------------------

    @contextmanager
    def _forking(self) -> Iterator[None]:
        """Hold the lock while the process forks."""
        with self._connection.lock:
            yield

    def _leaveToParent(self) -> None:
        """Close this copy of the client in a forked child; the parent keeps the connection."""
        lost = ConnectionLost("the connection belongs to the parent of this process: connect again")
        # Threads that held these locks do not exist in the child.
        self._subscribing, self._closing, self._alarm = threading.Lock(), threading.Event(), threading.Event()
        self._closing.set()
        self._connection.abandon(lost)
        self._clientState.end(lost)
        self._states.clear()

    # -- sending and waiting -----------------------------------------------------------------------

    def _post(self, size: int, make: FrameMaker) -> None:
        """Send or buffer a message that has no answer."""
        clientState, connection = self._clientState, self._connection
        isSent = False
        while not isSent:
            with connection.lock:
                if clientState.state is not State.JOINED:
                    clientState.bufferUntilJoined(size, make)
                    return
                conversation, account = clientState.conversation, clientState.accounts.current()
                clientState.accounts.beginSend(account)
            try:
                data = make(conversation)
                isSent = True  # at least in part, even if an exception follows
                isSent = connection.send(data, conversation)
            except ConnectionLost as lost:
                if not self._reconnects:
                    raise clientState.explained(lost) from None
                # The next flush reports the possible loss.
            finally:
                # Counted only now: a PING that another thread sent meanwhile does not confirm it.
                with connection.lock:
                    if isSent:
                        clientState.countSent(conversation, account)
                    else:
                        clientState.accounts.dropSend(account)

    def _sendLater(self, data: bytes) -> None:
        self._connection.sendLater(data, always=self._clientState.state is not State.JOINED)

    def _checkLosses(self) -> None:
        with self._connection.lock:
            self._clientState.checkLosses()

    def _waitUntilJoined(self, timeout: float | None) -> None:
        if self._clientState.state is State.JOINED:
            return
        with self._connection.lock:
            pending = self._clientState.whenJoined()
        try:
            self._await(pending, timeout, "a connection")
        finally:
            with self._connection.lock:
                self._clientState.cancelWait(pending)

    def _request(self, target: int, path: str, payload: bytes, timeout: float | None) -> Reply:
        clientState = self._clientState
        self._waitUntilJoined(timeout)
        with self._connection.lock:
            data, id, pending = clientState.request(target, path, payload)
            conversation = clientState.conversation
        try:
            # A refused request may be answered, and the connection closed, before it is completely sent.
            with suppress(ConnectionLost):
                self._connection.send(data, conversation)
            return self._await(pending, timeout, f"the answer to {path}")
        finally:
            with self._connection.lock:
                clientState.forgetRequest(id)

    def _barrier(self, timeout: float | None, what: str) -> Refusals:
        """Wait until everything sent is processed, and return the refusals."""
        with self._connection.lock:
            data, pending = self._clientState.barrier()
            conversation = self._clientState.conversation
        with suppress(ConnectionLost):
            self._connection.send(data, conversation)
        return self._awaitBarrier(pending, timeout, what)

    def _awaitBarrier(self, pending: Pending[Refusals], timeout: float | None, what: str) -> Refusals:
        try:
            return self._await(pending, timeout, what)
        except BaseException:
            with self._connection.lock:
                self._clientState.detachBarrier(pending)
            raise

    def _await(self, pending: Pending[T], timeout: float | None, what: str) -> T:
        if not pending.done:
            try:
                self._connection.waitFor(lambda: pending.done, timeout)
            except ConnectionLost as lost:
                raise self._clientState.explained(lost) from None
        if not pending.done:
            raise TimeoutError(f"{what} did not arrive within {timeout:g} seconds")
        return pending.result()

    # -- connections -------------------------------------------------------------------------------

    def _join(self) -> None:
        settings, connection = self._settings, self._connection
        conversation = conversationOn(self._url, settings.codec.unpack)
        with connection.lock:
            joined = self._clientState.begin(conversation)
        connected = dial(self._url, settings.timeout, self._context)
        connection.attach(connected, conversation)
        with suppress(ConnectionLost):
            connection.waitFor(lambda: joined.done, settings.timeout)
        if not joined.done:
            lost = ConnectionLost(f"the broker did not answer within {settings.timeout:g} seconds")
            connection.fail(lost)
            raise lost
        if joined.error is not None:
            connection.fail(self._clientState.lost)
        joined.result()
        connection.writePending()
        self._reportStates()

    def _lost(self, lost: ConnectionLost) -> None:
        """Handle the end of the connection; called under the lock."""
        clientState = self._clientState
        if clientState.state is State.CLOSED:
            return
        self._connection.reconnects = self._reconnects
        if clientState.state is State.JOINED and not self._reconnects:
            clientState.end(lost)
        else:
            clientState.lose(lost)
        self._alarm.set()

    def _maintain(self) -> None:
        """Run the background thread: reconnect, ping, and report new states."""
        ticked = time.monotonic()
        every = self._settings.keep_alive
        look = _CHECK_SECONDS if every is None else min(_CHECK_SECONDS, every)
        while not self._closing.is_set():
            self._alarm.wait(look)
            self._alarm.clear()
            self._reportStates()
            if self._closing.is_set():
                return
            if self._clientState.state is State.AWAY:
                self._reconnect()
                ticked = time.monotonic()
                continue
            self._connection.poll()
            if every is not None and time.monotonic() - ticked >= every:
                ticked = time.monotonic()
                self._tick()

    def _tick(self) -> None:
        with self._connection.lock:
            isThere = self._clientState.tick(self._clientState.inbox.full)
        if isThere:
            self._connection.writePending()
        else:
            self._connection.fail(ConnectionLost("the broker was silent for too long"))

    def _reconnect(self) -> None:
        assert self._settings.reconnect is not None
        why: Exception = self._clientState.lost
        for pause in self._settings.reconnect.pauses():
            if self._closing.wait(pause):
                return
            try:
                self._join()
                return
            except (ConnectionLost, JoinRefused) as error:
                why = error
                if not isTransient(error):
                    break
            except Exception as error:
                _log.exception("Reconnecting failed")
                why = error
                break
        self._end(why)

    def _end(self, why: Exception | None) -> None:
        """Close for good."""
        with self._connection.lock:
            self._connection.reconnects = False
            self._clientState.end(why)
            self._connection.wake()
        self._closing.set()
        self._alarm.set()
        self._connection.close()
        self._reportStates()

    def _stateChanged(self, state: State, why: Exception | None) -> None:
        self._states.append((state, why))
        self._alarm.set()

    def _reportStates(self) -> None:
        """Call ``on_state`` with new states; never under a lock."""
        while self._states:
            with suppress(IndexError):
                state, why = self._states.popleft()
                if self._settings.on_state is not None:
                    try:
                        self._settings.on_state(state, why)
                    except Exception:
                        _log.exception("The callback on_state failed")

    # -- inside ------------------------------------------------------------------------------------

    def _unsubscribe(self, box: Box) -> None:
        """Close a box, and unsubscribe if it was the last one of its name."""
        with self._subscribing:
            with self._connection.lock:
                last = self._clientState.inbox.close(box)
                self._connection.wake()
                conversation = self._clientState.conversation
                goes = last and self._clientState.state is State.JOINED
            if goes:
                with suppress(ConnectionLost):
                    # The PONG wakes the thread that reads for this subscription.
                    self._connection.send(conversation.unsubscription(box.topic) + conversation.ping(0), conversation)

    def _requested(self, request: Request) -> None:
        self._requests.append(request)

    def _serve(self) -> None:
        while self._clientState.state is not State.CLOSED:
            try:
                request = self._connection.waitFor(
                    lambda: self._requests.popleft() if self._requests else self._closing.is_set(), None, needed=False
                )
            except ConnectionLost:
                return
            if isinstance(request, Request):
                self._answer(request)

    def _answer(self, request: Request) -> None:
        clientState = self._clientState
        conversation = clientState.conversation
        try:
            data = clientState.answer(request, self._functions[request.path](request))
        except Answered as error:
            data = clientState.failure(request, error)
        except Exception as error:
            _log.exception("The service of %s failed", request.path)
            data = clientState.failure(request, error)
        if clientState.state is State.JOINED:
            with suppress(ConnectionLost):
                self._connection.send(data, conversation)
