"""The client for programs that wait: scripts, notebooks, worker processes. Plain sockets, no event loop.

::

    with connect("tcp://localhost:7890") as client:
        client.publish("news", {"rain": True})

A client may be used by several threads at once. What is waited for is read by whoever waits. A thread of the client's
own, the keeper, looks once a second, makes lost connections anew and asks a silent broker whether it is there; without
``reconnect`` and ``keepAlive`` there is none.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, TypeVar, Unpack

from fleximq.client.blocking import fork_safety
from fleximq.client.blocking.shared_connection import WireSocket
from fleximq.client.blocking.subscription import Subscription
from fleximq.client.contexts import Leaving
from fleximq.client.errors import Answered, ConnectionLost, JoinRefused
from fleximq.client.events import Reply, Request
from fleximq.client.protocol.client_state import Ledger, Maker, passes, portions, publicationOf
from fleximq.client.protocol.completion import Pending
from fleximq.client.protocol.conversation import BROKER, conversationOn, packed
from fleximq.client.protocol.inbox import Box
from fleximq.client.protocol.refusals import Refusals
from fleximq.client.settings import PATIENCE, ClientSettings, Start, State, Wishes
from fleximq.client.sockets import checkTls, dial
from fleximq.values.urls import Url

__all__ = ["Client", "Start", "Subscription", "connect"]
_log = logging.getLogger("fleximq.client.blocking")
#: The keeper looks so often whether there is anything to do, in seconds.
_LOOK = 1.0

T = TypeVar("T")


def connect(url: str = "tcp://localhost:7890", **wishes: Unpack[Wishes]) -> "Client":
    """Connect and join; use what is returned in a ``with`` statement, or close it.

    :param url: ``tcp://``, ``tls://``, ``ipc://``, ``ws://``, ``wss://``, or ``stdio://`` in a program that the broker
        has started.
    :param wishes: see :class:`~fleximq.client.settings.ClientSettings`; ``tls`` may be an ``ssl.SSLContext``.
    :raises SettingError: the URL or a wish makes no sense.
    :raises ConnectionLost: nobody listens there, or nobody who speaks FlexiMQ.
    :raises Untrusted: one side does not trust the other's certificate.
    :raises JoinRefused: the broker does not let this client in.
    """
    return Client(Url.parse(url), ClientSettings(**wishes))


class Client(Leaving):
    """A connection to a broker, made by :func:`connect`, and made anew when it is lost.

    Values may be whatever MessagePack can hold, or the ``codec``; others raise TypeError, ValueError or OverflowError
    before anything is sent. What is published while the broker is away is kept for it, up to ``buffer`` bytes; whoever
    waits for an answer when the connection is lost gets :class:`~fleximq.client.errors.ConnectionLost`.
    """

    def __init__(self, url: Url, settings: ClientSettings) -> None:
        checkTls(url, settings)
        self._url = url
        self._settings = settings
        self._context = settings.context() if url.isSecure else None
        self._ledger = Ledger(settings, self._owe, lambda: self._wire.wake(), self._changed, self._asked)
        self._wire = WireSocket(
            None,
            self._ledger.conversation,
            self._ledger.heard,
            lambda: self._ledger.inbox.full,
            self._lost,
            self._ledger.delivered,
        )
        self._subscribing = threading.Lock()
        self._functions: dict[str, Callable[[Request], Any]] = {}
        self._requests: deque[Request] = deque()
        self._states: deque[tuple[State, Exception | None]] = deque()
        self._mends = settings.reconnect is not None and url.scheme != "stdio"
        self._alarm = threading.Event()
        self._closing = threading.Event()
        try:
            self._join()
        except BaseException:
            self.hangUp()
            raise
        fork_safety.watch(self)
        if self._mends or settings.keepAlive is not None:
            threading.Thread(target=self._keep, name="fleximq-keeper", daemon=True).start()

    @property
    def id(self) -> int:
        """The id that the broker gave to this connection; another one after the next."""
        return self._ledger.conversation.id

    @property
    def state(self) -> State:
        """Where the client stands."""
        return self._ledger.state or State.AWAY

    # -- what a program says -----------------------------------------------------------------------

    def publish(self, topic: str, value: object, /, **keys: Any) -> None:
        """Publish a value; it is on its way when this returns, and done after the next :meth:`flush`.

        :param keys: further keys of the header, such as ``key``, ``message_id``, ``correlation_id``, ``reply_to``.
        :raises TypeError: ``topic`` is among them.
        :raises BufferFull: the broker is away, and no more can be kept for it.
        :raises ConnectionLost: the client is closed.
        """
        payload = self._settings.codec.pack(value)
        self._post(len(payload), publicationOf(topic, payload, keys))

    def publishMany(self, topic: str, values: Iterable[object]) -> None:
        """Publish many values at once, which is much quicker than one by one; errors as :meth:`publish`.

        They are collected and sent in portions of about a MiB; if one cannot be packed, those before may be sent.
        """
        for size, make in portions(topic, values, self._settings.codec.pack):
            self._post(size, make)

    def notify(self, targets: int | Sequence[int], path: str, value: object = None) -> None:
        """Send a notification to one client or several; nobody answers it."""
        several = [targets] if isinstance(targets, int) else list(targets)
        payload = self._settings.codec.pack(value)
        self._post(len(payload), lambda said: said.notification(several, path, payload))

    def broadcast(self, value: object = None) -> None:
        """Send a value to every other client."""
        payload = self._settings.codec.pack(value)
        self._post(len(payload), lambda said: said.broadcast(payload))

    def flush(self, timeout: float | None = PATIENCE) -> None:
        """Return when all that was sent is done and, on durable topics, on disk.

        :raises PublishFailed: something was refused since the last flush; of several threads, one is told.
        :raises ConnectionLost: the connection was lost since then; what was sent before may not have arrived. Each
            thread of whose publications that is so is told once, and so is the first of all others.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        accounts = self._ledger.accounts
        self._checkCertain()
        self._arrive(timeout)
        self._checkCertain()
        sent = accounts.sent
        try:
            refused = self._barrier(timeout, "a flush")
        except ConnectionLost:
            with self._wire.lock:
                accounts.tell()
            raise
        with self._wire.lock:
            accounts.flushed = max(accounts.flushed, sent)
        refused.check()

    def ping(self, timeout: float | None = PATIENCE) -> float:
        """Return how many seconds the broker takes to answer, everything sent before included."""
        self._arrive(timeout)
        begun = time.perf_counter()
        refused = self._barrier(timeout, "the answer to a PING")
        took = time.perf_counter() - begun
        with self._wire.lock:
            self._ledger.keep(refused)
        return took

    def subscribe(self, topic: str, from_: Start | None = None, timeout: float | None = PATIENCE) -> Subscription:
        """Subscribe to a topic or pattern, and return when the broker has done it.

        What comes is given to every subscription that it matches, also what another one asked of the past. Those that
        begin in the past must have no topics in common. A subscription goes on when the connection was lost and made
        again: one with ``from_`` behind the last offset that came, others with what is published from then on.

        :param from_: for durable topics: "first", "last", an offset, or ``{"time": milliseconds since 1970}``; then
            deliveries have an ``offset``.
        :raises SubscribeFailed: the broker refused, e.g. with 603, or with 404 if an offset is kept no longer.
        :raises TimeoutError: there was no answer in so many seconds.
        :raises ValueError: it begins in the past and has a topic in common with another that does, or has the name of
            another and one of the two begins in the past.
        """
        what = f"the subscription to {topic}"
        self._arrive(timeout)
        # When this is passed, nothing that an earlier subscription brought is on its way any more.
        refused = self._barrier(timeout, what)
        with self._wire.lock:
            self._ledger.keep(refused)
        with self._subscribing:
            with self._wire.lock:
                made = self._ledger.subscription(topic, from_)
                said = self._ledger.conversation
            with suppress(ConnectionLost):
                self._wire.send(made.data, said)
        try:
            self._await(made.after, timeout, what)
        except BaseException:
            with self._wire.lock:
                self._ledger.giveUp(made)
            self._unsubscribe(made.box)
            raise
        with self._wire.lock:
            self._ledger.subscribed(made)
        return Subscription(self._wire, self._ledger.inbox, made.box, self._unsubscribe)

    def notifications(self) -> Subscription:
        """Return what iterates over what comes from now on to this client itself: notifications and broadcasts."""
        with self._wire.lock:
            box = self._ledger.inbox.openDirect()
        return Subscription(self._wire, self._ledger.inbox, box, self._unsubscribe)

    def request(self, target: int, path: str, value: object = None, timeout: float | None = PATIENCE) -> Any:
        """Ask another client and return its answer's value.

        :param target: its id.
        :raises RequestFailed: it answered with an error, or the broker could not reach it.
        :raises TimeoutError: there was no answer in so many seconds.
        :raises ConnectionLost: the connection ended; whether the request arrived is not known.
        :raises ValueError: the answer cannot be read.
        """
        return self._ledger.valueOf(path, self._request(target, path, self._settings.codec.pack(value), timeout))

    def ask(self, path: str, value: object = None, timeout: float | None = PATIENCE) -> Any:
        """Ask the broker itself, e.g. ``/broker/about``; errors as for :meth:`request`."""
        return self._ledger.valueOf(path, self._request(BROKER, path, packed(value), timeout))

    def askPacked(self, path: str, value: object = None, timeout: float | None = PATIENCE) -> bytes | memoryview:
        """Ask the broker itself for what is large, and return the answer's payload, a MessagePack value, as it came."""
        return self._ledger.payloadOf(path, self._request(BROKER, path, packed(value), timeout))

    def serve(self, path: str, function: Callable[[Request], Any]) -> None:
        """Answer requests to a path with what a function returns for each, in a thread of the client's own.

        An :class:`~fleximq.client.errors.Answered` that it raises is the answer, with its status and words; any other
        exception is logged, and answered with 500. A path is served until the client is closed, over every connection.
        All functions of a client run in one thread, one after the other, or in as many as ``threads`` says.

        :raises ValueError: the path is served already.
        """
        with self._wire.lock:
            if path in self._functions:
                raise ValueError(f"the path {path!r} is served already")
            self._functions[path] = function
            self._ledger.served.add(path)
            if len(self._functions) == 1:
                for _ in range(self._settings.threads):
                    threading.Thread(target=self._serve, name="fleximq-server", daemon=True).start()

    def close(self, timeout: float | None = PATIENCE) -> None:
        """Flush, if anything was sent since the last flush, and end the connection; iterations over subscriptions end.

        It is ended in any case; a second time nothing happens.

        :raises PublishFailed: as :meth:`flush`.
        :raises TimeoutError: as :meth:`flush`.
        :raises ConnectionLost: the connection has ended before all that was sent is known to be done.
        """
        try:
            with self._wire.lock:
                self._ledger.inbox.closeAll()
                self._wire.wake()
            if self._ledger.accounts.isOwing:
                self.flush(timeout)
        finally:
            self.hangUp()

    def hangUp(self) -> None:
        """End the connection at once, without a flush."""
        self._over(None)

    @contextmanager
    def forking(self) -> Iterator[None]:
        """Let a process fork inside the block: nobody else does anything with the client meanwhile."""
        with self._wire.lock:
            yield

    def leaveToParent(self) -> None:
        """Be closed, in a process that was just forked: the connection goes on in the one that has made it."""
        lost = ConnectionLost("the connection belongs to the process that has made it: connect in this one as well")
        # Whoever held these locks is not in this process.
        self._subscribing, self._closing, self._alarm = threading.Lock(), threading.Event(), threading.Event()
        self._closing.set()
        self._wire.abandon(lost)
        self._ledger.end(lost)
        self._states.clear()

    # -- sending and waiting -----------------------------------------------------------------------

    def _post(self, size: int, make: Maker) -> None:
        """Send what waits for no answer, or keep it for later."""
        ledger, wire = self._ledger, self._wire
        isSent = False
        while not isSent:
            with wire.lock:
                if ledger.state is not State.JOINED:
                    ledger.keepForLater(size, make)
                    return
                said, account = ledger.conversation, ledger.accounts.mine()
                ledger.accounts.begin(account)
            try:
                data = make(said)
                isSent = True  # in part, whatever gets in between
                isSent = wire.send(data, said)
            except ConnectionLost as lost:
                if not self._mends:
                    raise ledger.explained(lost) from None
                # The next flush tells that it may not have arrived.
            finally:
                # Only from now on a PING is behind it: another thread's may have been sent meanwhile.
                with wire.lock:
                    if isSent:
                        ledger.sentOn(said, account)
                    else:
                        ledger.accounts.drop(account)

    def _owe(self, data: bytes) -> None:
        self._wire.owe(data, always=self._ledger.state is not State.JOINED)

    def _checkCertain(self) -> None:
        with self._wire.lock:
            self._ledger.checkCertain()

    def _arrive(self, timeout: float | None) -> None:
        if self._ledger.state is State.JOINED:
            return
        with self._wire.lock:
            pending = self._ledger.arrival()
        try:
            self._await(pending, timeout, "a connection")
        finally:
            with self._wire.lock:
                self._ledger.waitNoLonger(pending)

    def _request(self, target: int, path: str, payload: bytes, timeout: float | None) -> Reply:
        ledger = self._ledger
        self._arrive(timeout)
        with self._wire.lock:
            data, id, pending = ledger.request(target, path, payload)
            said = ledger.conversation
        try:
            # Who is refused for what he is sending may be answered, and cut off, before he has sent all of it.
            with suppress(ConnectionLost):
                self._wire.send(data, said)
            return self._await(pending, timeout, f"the answer to {path}")
        finally:
            with self._wire.lock:
                ledger.forget(id)

    def _barrier(self, timeout: float | None, what: str) -> Refusals:
        """Wait until all that was sent is done, and return what was refused of it."""
        with self._wire.lock:
            data, pending = self._ledger.barrier()
            said = self._ledger.conversation
        with suppress(ConnectionLost):
            self._wire.send(data, said)
        return self._passed(pending, timeout, what)

    def _passed(self, pending: Pending[Refusals], timeout: float | None, what: str) -> Refusals:
        try:
            return self._await(pending, timeout, what)
        except BaseException:
            with self._wire.lock:
                self._ledger.leave(pending)
            raise

    def _await(self, pending: Pending[T], timeout: float | None, what: str) -> T:
        if not pending.done:
            try:
                self._wire.waitFor(lambda: pending.done, timeout)
            except ConnectionLost as lost:
                raise self._ledger.explained(lost) from None
        if not pending.done:
            raise TimeoutError(f"{what} did not come within {timeout:g} seconds")
        return pending.result()

    # -- connections -------------------------------------------------------------------------------

    def _join(self) -> None:
        settings, wire = self._settings, self._wire
        conversation = conversationOn(self._url, settings.codec.unpack)
        with wire.lock:
            joined = self._ledger.begin(conversation)
        connected = dial(self._url, settings.timeout, self._context)
        wire.attach(connected, conversation)
        with suppress(ConnectionLost):
            wire.waitFor(lambda: joined.done, settings.timeout)
        if not joined.done:
            lost = ConnectionLost(f"the broker did not answer within {settings.timeout:g} seconds")
            wire.fail(lost)
            raise lost
        if joined.error is not None:
            wire.fail(self._ledger.lost)
        joined.result()
        wire.pay()
        self._emit()

    def _lost(self, lost: ConnectionLost) -> None:
        """The connection has ended; called under the lock."""
        ledger = self._ledger
        if ledger.state is State.CLOSED:
            return
        self._wire.mends = self._mends
        if ledger.state is State.JOINED and not self._mends:
            ledger.end(lost)
        else:
            ledger.lose(lost)
        self._alarm.set()

    def _keep(self) -> None:
        """Do what has to be done while nobody waits."""
        ticked = time.monotonic()
        every = self._settings.keepAlive
        look = _LOOK if every is None else min(_LOOK, every)
        while not self._closing.is_set():
            self._alarm.wait(look)
            self._alarm.clear()
            self._emit()
            if self._closing.is_set():
                return
            if self._ledger.state is State.AWAY:
                self._comeBack()
                ticked = time.monotonic()
                continue
            self._wire.glance()
            if every is not None and time.monotonic() - ticked >= every:
                ticked = time.monotonic()
                self._tick()

    def _tick(self) -> None:
        with self._wire.lock:
            isThere = self._ledger.tick(self._ledger.inbox.full)
        if isThere:
            self._wire.pay()
        else:
            self._wire.fail(ConnectionLost("the broker was silent for too long"))

    def _comeBack(self) -> None:
        assert self._settings.reconnect is not None
        why: Exception = self._ledger.lost
        for pause in self._settings.reconnect.pauses():
            if self._closing.wait(pause):
                return
            try:
                self._join()
                return
            except (ConnectionLost, JoinRefused) as error:
                why = error
                if not passes(error):
                    break
            except Exception as error:
                _log.exception("Connecting again failed")
                why = error
                break
        self._over(why)

    def _over(self, why: Exception | None) -> None:
        """Have no connection any more, and get none."""
        with self._wire.lock:
            self._wire.mends = False
            self._ledger.end(why)
            self._wire.wake()
        self._closing.set()
        self._alarm.set()
        self._wire.close()
        self._emit()

    def _changed(self, state: State, why: Exception | None) -> None:
        self._states.append((state, why))
        self._alarm.set()

    def _emit(self) -> None:
        """Tell the program about new states; never under a lock."""
        while self._states:
            with suppress(IndexError):
                state, why = self._states.popleft()
                if self._settings.onState is not None:
                    try:
                        self._settings.onState(state, why)
                    except Exception:
                        _log.exception("A callback for states failed")

    # -- inside ------------------------------------------------------------------------------------

    def _unsubscribe(self, box: Box) -> None:
        """Let nothing more into a box, and take the subscription back if it was the last of its name."""
        with self._subscribing:
            with self._wire.lock:
                last = self._ledger.inbox.close(box)
                self._wire.wake()
                said = self._ledger.conversation
                goes = last and self._ledger.state is State.JOINED
            if goes:
                with suppress(ConnectionLost):
                    # The PONG wakes whoever reads for this subscription.
                    self._wire.send(said.unsubscription(box.topic) + said.ping(0), said)

    def _asked(self, request: Request) -> None:
        self._requests.append(request)

    def _serve(self) -> None:
        while self._ledger.state is not State.CLOSED:
            try:
                request = self._wire.waitFor(
                    lambda: self._requests.popleft() if self._requests else self._closing.is_set(), None, needed=False
                )
            except ConnectionLost:
                return
            if isinstance(request, Request):
                self._answer(request)

    def _answer(self, request: Request) -> None:
        ledger = self._ledger
        said = ledger.conversation
        try:
            data = ledger.answer(request, self._functions[request.path](request))
        except Answered as error:
            data = ledger.failure(request, error)
        except Exception as error:
            _log.exception("The service of %s failed", request.path)
            data = ledger.failure(request, error)
        if ledger.state is State.JOINED:
            with suppress(ConnectionLost):
                self._wire.send(data, said)
