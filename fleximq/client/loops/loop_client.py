"""The client for programs with an event loop, whichever it is: all that asyncio's form and Twisted's have in common.

What a loop has to do is in :class:`~fleximq.client.loops.interfaces.Loop`. A client is used from the loop's own thread.
What
is published in one turn of the loop is written at once at its end.
"""

import inspect
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Self

from fleximq.client.contexts import Iterating
from fleximq.client.errors import Answered, ClientError, ConnectionLost, JoinRefused
from fleximq.client.events import Delivery, Notification, Request
from fleximq.client.loops.connection import MUCH, Connection
from fleximq.client.loops.interfaces import Cancellable, Loop
from fleximq.client.protocol.client_state import Ledger, Maker, passes, portions, publicationOf
from fleximq.client.protocol.completion import Pending
from fleximq.client.protocol.conversation import BROKER, conversationOn, packed
from fleximq.client.protocol.inbox import Box
from fleximq.client.protocol.loss_accounts import OfContext
from fleximq.client.protocol.refusals import Refusals
from fleximq.client.settings import PATIENCE, ClientSettings, Start, State
from fleximq.errors import BrokerError, SettingError
from fleximq.values.urls import Url

_log = logging.getLogger("fleximq.client.awaited")
#: Answers requests to a path: with a value, or with what has one when it is awaited.
Function = Callable[[Request], Any]


class AwaitedClient:
    """A connection to a broker, made anew when it is lost.

    Values may be whatever MessagePack can hold, or the ``codec``; others raise TypeError, ValueError or OverflowError
    before anything is sent. What is published while the broker is away is kept for it, up to ``buffer`` bytes; whoever
    waits for an answer when the connection is lost gets :class:`~fleximq.client.errors.ConnectionLost`.
    """

    def __init__(self, loop: Loop, url: Url, settings: ClientSettings) -> None:
        self._loop = loop
        self._url = url
        self._settings = settings
        holder = OfContext(loop.user)
        self._connection = Connection(loop, self, self._framed)
        self._ledger = Ledger(settings, self._connection.send, self._relieved, self._changed, self._asked, holder)
        self._functions: dict[str, Function] = {}
        self._paused = False
        self._ticking: Cancellable | None = None
        self._returning: Cancellable | None = None
        self._tasks: set[Cancellable] = set()

    async def open(self) -> Self:
        """Connect and join, for the first time.

        :raises ConnectionLost: nobody listens there, or nobody who speaks FlexiMQ.
        :raises Untrusted: one side does not trust the other's certificate.
        :raises JoinRefused: the broker does not let this client in.
        """
        try:
            await self._join()
        except BaseException as error:
            self._end(error if isinstance(error, Exception) else None)
            raise
        return self

    @property
    def id(self) -> int:
        """The id that the broker gave to this connection; another one after the next."""
        return self._ledger.conversation.id

    @property
    def state(self) -> State:
        """Where the client stands."""
        return self._ledger.state or State.AWAY

    # -- what a program says -----------------------------------------------------------------------

    async def publish(self, topic: str, value: object, /, **keys: Any) -> None:
        """Publish a value; it is done after the next :meth:`flush`. Waits only while the broker takes no more.

        :param keys: further keys of the header, such as ``key``, ``message_id``, ``correlation_id``, ``reply_to``.
        :raises TypeError: ``topic`` is among them.
        :raises BufferFull: the broker is away, and no more can be kept for it.
        :raises ConnectionLost: the client is closed.
        """
        payload = self._settings.codec.pack(value)
        await self._post(len(payload), publicationOf(topic, payload, keys))

    async def publishMany(self, topic: str, values: Iterable[object]) -> None:
        """Publish many values at once, which is much quicker than one by one; errors as :meth:`publish`."""
        for size, make in portions(topic, values, self._settings.codec.pack):
            await self._post(size, make)

    async def notify(self, targets: int | Sequence[int], path: str, value: object = None) -> None:
        """Send a notification to one client or several; nobody answers it."""
        several = [targets] if isinstance(targets, int) else list(targets)
        payload = self._settings.codec.pack(value)
        await self._post(len(payload), lambda said: said.notification(several, path, payload))

    async def broadcast(self, value: object = None) -> None:
        """Send a value to every other client."""
        payload = self._settings.codec.pack(value)
        await self._post(len(payload), lambda said: said.broadcast(payload))

    async def flush(self, timeout: float | None = PATIENCE) -> None:
        """Return when all that was sent is done and, on durable topics, on disk.

        :raises PublishFailed: something was refused since the last flush; of several who flush, one is told.
        :raises ConnectionLost: the connection was lost since then; what was sent before may not have arrived. Each
            task of whose publications that is so is told once, and so is the first of all others.
        :raises TimeoutError: it took longer than ``timeout`` seconds.
        """
        ledger, accounts = self._ledger, self._ledger.accounts
        ledger.checkCertain()
        await self._arrive(timeout)
        ledger.checkCertain()
        sent = accounts.sent
        try:
            refused = await self._barrier(timeout, "a flush")
        except ConnectionLost:
            accounts.tell()
            raise
        accounts.flushed = max(accounts.flushed, sent)
        refused.check()

    async def _arrive(self, timeout: float | None) -> None:
        pending = self._ledger.arrival()
        try:
            await self._loop.wait(pending, timeout, "a connection")
        finally:
            self._ledger.waitNoLonger(pending)

    def claim(self) -> None:
        """Let what is published next be from who calls this, though he publishes in a copy of his context."""
        self._ledger.accounts.mine()

    async def ping(self, timeout: float | None = PATIENCE) -> float:
        """Return how many seconds the broker takes to answer, everything sent before included."""
        await self._arrive(timeout)
        begun = time.perf_counter()
        refused = await self._barrier(timeout, "the answer to a PING")
        took = time.perf_counter() - begun
        self._ledger.keep(refused)
        return took

    async def request(self, target: int, path: str, value: object = None, timeout: float | None = PATIENCE) -> Any:
        """Ask another client and return its answer's value.

        :param target: its id.
        :raises RequestFailed: it answered with an error, or the broker could not reach it.
        :raises TimeoutError: there was no answer in so many seconds.
        :raises ConnectionLost: the connection ended; whether the request arrived is not known.
        :raises ValueError: the answer cannot be read.
        """
        return await self._request(target, path, self._settings.codec.pack(value), timeout)

    async def ask(self, path: str, value: object = None, timeout: float | None = PATIENCE) -> Any:
        """Ask the broker itself, e.g. ``/broker/about``; errors as for :meth:`request`."""
        return await self._request(BROKER, path, packed(value), timeout)

    async def _request(self, target: int, path: str, payload: bytes, timeout: float | None) -> Any:
        ledger = self._ledger
        if ledger.state is not State.JOINED:
            await self._arrive(timeout)
        data, id, pending = ledger.request(target, path, payload)
        try:
            self._sendNow(data)
            reply = await self._loop.wait(pending, timeout, f"the answer to {path}")
        finally:
            ledger.forget(id)
        return ledger.valueOf(path, reply)

    async def subscribe(
        self, topic: str, from_: Start | None = None, timeout: float | None = PATIENCE
    ) -> "AwaitedSubscription":
        """Subscribe to a topic or pattern, and return when the broker has done it.

        It goes on when the connection was lost and made again: one with ``from_`` behind the last offset that came,
        others with what is published from then on.

        :param from_: for durable topics: "first", "last", an offset, or ``{"time": milliseconds since 1970}``; then
            deliveries have an ``offset``.
        :raises SubscribeFailed: the broker refused, e.g. with 603, or with 404 if an offset is kept no longer.
        :raises TimeoutError: there was no answer in so many seconds.
        :raises ValueError: it begins in the past and has a topic in common with another that does, or has the name of
            another and one of the two begins in the past.
        """
        ledger, what = self._ledger, f"the subscription to {topic}"
        await self._arrive(timeout)
        # When this is passed, nothing that an earlier subscription brought is on its way any more.
        ledger.keep(await self._barrier(timeout, what))
        made = ledger.subscription(topic, from_)
        try:
            self._sendNow(made.data)
            await self._loop.wait(made.after, timeout, what)
        except BaseException:
            ledger.giveUp(made)
            self._unsubscribe(made.box)
            raise
        ledger.subscribed(made)
        return AwaitedSubscription(self, made.box)

    def notifications(self) -> "AwaitedSubscription":
        """Return what iterates over what comes from now on to this client itself: notifications and broadcasts."""
        return AwaitedSubscription(self, self._ledger.inbox.openDirect())

    def serve(self, path: str, function: Function) -> None:
        """Answer requests to a path with what a function returns for each; it may be a coroutine function.

        An :class:`~fleximq.client.errors.Answered` that it raises is the answer, with its status and words; any other
        exception is logged, and answered with 500. A path is served until the client is closed, over every connection.

        :raises ValueError: the path is served already.
        """
        if path in self._functions:
            raise ValueError(f"the path {path!r} is served already")
        self._functions[path] = function
        self._ledger.served.add(path)

    async def close(self, timeout: float | None = PATIENCE) -> None:
        """Flush, if anything was sent since the last flush, and end the connection; iterations over subscriptions end.

        It is ended in any case; a second time nothing happens.

        :raises PublishFailed: and TimeoutError, as :meth:`flush`.
        :raises ConnectionLost: the connection has ended before all that was sent is known to be done.
        """
        self._ledger.inbox.closeAll()
        try:
            if self._ledger.accounts.isOwing:
                await self.flush(timeout)
        finally:
            self._end(None)

    def hangUp(self) -> None:
        """End the connection at once, without a flush."""
        self._end(None)

    # -- sending -----------------------------------------------------------------------------------

    async def _post(self, size: int, make: Maker) -> None:
        """Send what waits for no answer, or keep it for later."""
        ledger = self._ledger
        if ledger.state is not State.JOINED:
            ledger.keepForLater(size, make)
            return
        connection = self._connection
        connection.send(make(ledger.conversation))
        ledger.accounts.note(ledger.accounts.mine())
        if connection.waiting >= MUCH:
            await connection.drain()

    def _sendNow(self, data: bytes) -> None:
        self._connection.sendNow(data)
        if self._paused:
            self._resume()

    def _framed(self, data: bytes) -> bytes:
        """Return what is written of what was sent, behind what is due on the line itself."""
        said = self._ledger.conversation
        framed = said.framed(data) if data else data
        if said.due:
            framed = b"".join((*said.due, framed))
            said.due.clear()
        return framed

    # -- waiting -----------------------------------------------------------------------------------

    async def _barrier(self, timeout: float | None, what: str) -> Refusals:
        """Wait until all that was sent is done, and return what was refused of it."""
        data, pending = self._ledger.barrier()
        self._sendNow(data)
        return await self._passed(pending, timeout, what)

    async def _passed(self, pending: Pending[Refusals], timeout: float | None, what: str) -> Refusals:
        try:
            return await self._loop.wait(pending, timeout, what)
        except BaseException:
            # Nobody waits any more: what was refused then is told by the next flush.
            self._ledger.leave(pending)
            raise

    # -- the line ----------------------------------------------------------------------------------

    async def _join(self) -> None:
        settings = self._settings
        conversation = conversationOn(self._url, settings.codec.unpack)
        joined = self._ledger.begin(conversation)
        try:
            await self._loop.dial(self._url, settings, self._connection.listen())
            await self._loop.wait(joined, settings.timeout, "")
        except TimeoutError:
            raise ConnectionLost(f"the broker did not answer within {settings.timeout:g} seconds") from None
        finally:
            if not joined.done or joined.error is not None:
                self._connection.drop()
        if self._ticking is None and settings.keepAlive is not None:
            self._ticking = self._loop.later(settings.keepAlive, self._tick)

    def _tick(self) -> None:
        assert self._settings.keepAlive is not None
        self._ticking = self._loop.later(self._settings.keepAlive, self._tick)
        if not self._ledger.tick(self._paused):
            self.lose(ConnectionLost("the broker was silent for too long"))

    def made(self) -> None:
        """The line of the current conversation is there."""
        self._paused = False
        self._connection.push()

    def heard(self, data: bytes) -> None:
        """Something was read from it."""
        ledger = self._ledger
        try:
            ledger.take(data)
        except BrokerError as error:
            self.lose(ConnectionLost(f"what came is not FlexiMQ: {error}"))
            return
        if ledger.conversation.due:
            self._connection.push()
        if not self._paused and ledger.inbox.full and not ledger.needsAnswers and self._connection.line is not None:
            self._paused = True
            self._connection.line.pauseReading()

    def _relieved(self) -> None:
        if self._paused:
            self._resume()

    def _resume(self) -> None:
        self._paused = False
        if self._connection.line is not None:
            self._connection.line.resumeReading()

    def lose(self, lost: ConnectionLost) -> None:
        """Give a connection up, and make another one if that is wished."""
        ledger = self._ledger
        if ledger.state is State.CLOSED:
            return
        wasJoined = ledger.state is State.JOINED
        self._connection.drop()
        if wasJoined and (self._settings.reconnect is None or self._url.scheme == "stdio"):
            self._end(lost)
            return
        ledger.lose(lost)
        if wasJoined:
            self._returning = self._loop.start(self._comeBack(lost))

    async def _comeBack(self, lost: Exception) -> None:
        assert self._settings.reconnect is not None
        why = lost
        for pause in self._settings.reconnect.pauses():
            await self._loop.rest(pause)
            if self._ledger.state is not State.AWAY:
                return
            try:
                await self._join()
                return
            except (ConnectionLost, JoinRefused, SettingError) as error:
                if self._returning is None:
                    return  # It was closed meanwhile, and some loops say so by an error.
                why = error
                if not passes(error):
                    break
            except Exception as error:
                if self._returning is None:
                    return
                _log.exception("Connecting again failed")
                why = error
                break
        self._end(why)

    def _end(self, why: Exception | None) -> None:
        """End for good."""
        returning, self._returning = self._returning, None
        for each in (self._ticking, returning if why is None else None, *self._tasks):
            if each is not None:
                with suppress(Exception):
                    each.cancel()
        self._ticking = None
        self._connection.end()
        self._ledger.end(why)

    def _changed(self, state: State, why: Exception | None) -> None:
        if self._settings.onState is not None:
            try:
                self._settings.onState(state, why)
            except Exception:
                _log.exception("A callback for states failed")

    # -- inside ------------------------------------------------------------------------------------

    def _unsubscribe(self, box: Box) -> None:
        if self._ledger.inbox.close(box) and self._ledger.state is State.JOINED:
            self._connection.send(self._ledger.conversation.unsubscription(box.topic))

    def _asked(self, request: Request) -> None:
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
        said = self._ledger.conversation
        try:
            value = self._functions[request.path](request)
            if inspect.isawaitable(value):
                value = await value
            data = self._ledger.answer(request, value)
        except Answered as error:
            data = self._ledger.failure(request, error)
        except Exception as error:
            _log.exception("The service of %s failed", request.path)
            data = self._ledger.failure(request, error)
        if said is self._ledger.conversation and self._ledger.state is State.JOINED:
            self._sendNow(data)


class AwaitedSubscription(Iterating[Any]):
    """What is published to a topic or pattern, in order: iterate over it, or take one by one.

    While more than ``prefetch`` bytes wait for all subscriptions of a client together, it reads no more, unless
    somebody waits for an answer; to the broker it is then a slow reader.
    """

    def __init__(self, client: AwaitedClient, box: Box) -> None:
        self._client = client
        self._take = client._ledger.inbox.take
        self._box = box
        self._waiters: list[Pending[None]] = []

    @property
    def topic(self) -> str:
        """The topic or pattern."""
        return self._box.topic

    @property
    def waiting(self) -> int:
        """How many deliveries came and were not taken."""
        return len(self._box.waiting)

    async def __anext__(self) -> Any:
        """Return the next delivery, waiting as long as it takes; the iteration ends when this or the client is closed.

        Raises what :meth:`next` raises.
        """
        if self._box.waiting:
            return self._take(self._box)
        return await super().__anext__()

    async def next(self, timeout: float | None = None) -> Delivery | Notification | None:
        """Return the next delivery; None if none came within ``timeout`` seconds, or if this was closed.

        All that came is given before anything is raised.

        :raises ConnectionLost: the connection ended, and there will be none.
        :raises SubscribeFailed: the broker ended the subscription, for it cannot bring what comes next.
        :raises Overrun: far more came than was taken.
        """
        box = self._box
        while not box.waiting:
            if box.end is not None:
                if isinstance(box.end, ClientError):
                    raise box.end
                return None
            pending: Pending[None] = Pending()
            self._waiters.append(pending)
            box.told = self._told
            try:
                await self._client._loop.wait(pending, timeout, "a delivery")
            except TimeoutError:
                return None
            finally:
                with suppress(ValueError):
                    self._waiters.remove(pending)
        return self._take(box)  # type: ignore[no-any-return]

    def _told(self) -> None:
        self._box.told = None
        waiters, self._waiters = self._waiters, []
        for each in waiters:
            each.succeed(None)

    def close(self) -> None:
        """Subscribe no longer; what came before can still be taken."""
        self._client._unsubscribe(self._box)
