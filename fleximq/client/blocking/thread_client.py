"""A client's connection that threads share, with plain sockets.

A waiting thread reads from the socket for all threads. A background thread wakes up once a second to reconnect and to
ping a silent broker; it is not started without ``reconnect`` and ``keep_alive``.
"""

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from typing import Any, Generic, TypeVar
from weakref import WeakSet

from fleximq.client.blocking.shared_connection import SharedConnection
from fleximq.client.blocking.worker import Jobs, Worker
from fleximq.client.contexts import ClosedOnExit
from fleximq.client.errors import ConnectionLost
from fleximq.client.events import BROKER, Delivery, Notification
from fleximq.client.jobs import Job
from fleximq.client.payloads import packed
from fleximq.client.protocol.accepted_requests import Accepted
from fleximq.client.protocol.client_state import ClientState
from fleximq.client.protocol.completion import Pending
from fleximq.client.protocol.consumers import JobBox
from fleximq.client.protocol.conversation import Conversation, conversationOn
from fleximq.client.protocol.inbox import Box, BoxReader, Inbox
from fleximq.client.protocol.publications import FrameMaker
from fleximq.client.protocol.queue_operations import QueueOperations
from fleximq.client.protocol.work_rules import WorkRules
from fleximq.client.settings import TIMEOUT, ClientSettings, State
from fleximq.client.sockets import dial
from fleximq.client.wrapper import completed
from fleximq.limits import KIBIBYTE
from fleximq.values.urls import Url

_log = logging.getLogger(__name__)
#: Seconds between two checks of the background thread.
_CHECK_SECONDS = 1.0
#: Above this, the background thread reads while the serving threads are busy; otherwise the broker would disconnect a
#: slow service as a slow consumer.
_BACKLOG_BYTES = 256 * KIBIBYTE
#: Settlements are sent together, so many at most, if each follows the one before within so many seconds.
_TOGETHER, _TURN = 1000, 0.002

T = TypeVar("T")
M = TypeVar("M", bound=Delivery | Notification)


class Subscription(BoxReader, ClosedOnExit, Generic[M]):
    """The messages of a topic or pattern, in order: iterate over it, or call :meth:`next`.

    Threads may share a subscription; one thread gets each delivery.

    While the client holds more than ``prefetch`` unread bytes in memory, threads that wait for deliveries stop reading,
    and the broker treats the client as a slow consumer; a thread that waits for an answer still reads. A subscription
    with more than 1 GiB of unread deliveries is ended with :class:`~fleximq.client.errors.Overrun`.
    """

    def __init__(self, connection: SharedConnection, inbox: Inbox, box: Box, end: Callable[[Box], None]) -> None:
        self._connection = connection
        self._lock = connection.lock
        self._inbox = inbox
        self._box = box
        self._end = end

    def __iter__(self) -> Iterator[M]:
        """Yield deliveries, waiting without a limit, until this or the client is closed; errors as :meth:`next`."""
        while (delivery := self.next()) is not None:
            yield delivery

    def next(self, timeout: float | None = None) -> M | None:
        """Return the next delivery; None after ``timeout`` seconds without one, or if this is closed.

        Errors are raised after the last unread delivery was returned.

        :raises ConnectionLost: the connection ended.
        :raises SubscribeFailed: the broker ended the subscription, since it cannot deliver the next message.
        :raises Overrun: too many deliveries were unread.
        """
        if self._box.waiting:
            with self._lock:
                delivery: M | None = self._inbox.take(self._box)
            if delivery is not None:
                return delivery
        found = self._connection.waitFor(self._news, timeout, needed=False)
        return None if isinstance(found, bool) else found

    def _news(self) -> M | bool | None:
        delivery: M | None = self._inbox.take(self._box)
        if delivery is not None:
            return delivery
        end = self._box.end
        if isinstance(end, Exception):
            raise end
        return end

    def close(self) -> None:
        """Unsubscribe; unread deliveries can still be read."""
        self._end(self._box)


class ThreadClient(QueueOperations[Subscription[Delivery], Subscription[Notification], Jobs]):
    """The operations for any thread: they wait by reading from the connection, or while another thread reads."""

    def __init__(self, urls: Sequence[Url], settings: ClientSettings) -> None:
        super().__init__(urls, settings, _log)
        self._context = settings.context() if self._url.isSecure else None
        self._clientState = ClientState(
            settings, self._sendLater, self._sendAnswer, self._wakeReaders, self._stateChanged, self._requested,
            self._settle,
        )  # fmt: skip
        self._connection = SharedConnection(
            None,
            self._clientState.conversation,
            self._clientState.received,
            self._clientState.delivered,
            lambda: self._clientState.inbox.full,
            self._lost,
        )
        self._lock = self._connection.lock
        self._subscribing = threading.Lock()
        self._states: deque[tuple[State, Exception | None]] = deque()
        self._alarm = threading.Event()
        self._closing = threading.Event()
        self._settledAt = 0.0
        self._hasKeeper = False
        self._workers = set()
        try:
            completed(self._joinAny())
        except BaseException:
            self.hang_up()
            raise
        _watchForks()
        _clients.add(self)
        self._hasKeeper = self._reconnects or settings.keep_alive is not None
        if self._hasKeeper:
            threading.Thread(target=self._maintain, name="fleximq-keeper", daemon=True).start()

    async def ask_packed(self, path: str, value: object = None, timeout: float | None = TIMEOUT) -> bytes | memoryview:
        """Like :meth:`ask`, but return the encoded payload, a MessagePack value; for large answers."""
        return self._clientState.payloadOf(path, await self._request(BROKER, path, packed(value), timeout))

    def leaveToParent(self) -> None:
        """Close this copy of the client in a forked child, since two processes cannot share the connection."""
        lost = ConnectionLost("the connection belongs to the parent of this process: connect again")
        # Threads that held these locks do not exist in the child.
        self._subscribing, self._closing, self._alarm = threading.Lock(), threading.Event(), threading.Event()
        self._closing.set()
        self._connection.abandon(lost)
        self._clientState.accounts.leave()
        self._clientState.end(lost)
        self._states.clear()

    async def _post(self, size: int, make: FrameMaker) -> None:
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
        self._connection.sendLater(data, always=True)

    def _sendAnswer(self, data: bytes) -> None:
        self._connection.sendLater(data)

    async def _sendReply(self, data: bytes, conversation: Conversation) -> None:
        self._transmit(data, conversation)

    def _transmit(self, data: bytes, conversation: Conversation) -> None:
        # A refused request may be answered, and the connection closed, before it is completely sent.
        with suppress(ConnectionLost):
            self._connection.send(data, conversation)

    async def _await(self, pending: Pending[T], timeout: float | None, what: str) -> T:
        if not pending.done:
            try:
                self._connection.waitFor(lambda: pending.done, timeout)
            except ConnectionLost as lost:
                raise self._clientState.explained(lost) from None
        if not pending.done:
            raise TimeoutError(f"{what} did not arrive within {timeout:g} seconds")
        return pending.result()

    async def _join(self) -> None:
        settings, connection = self._attempt, self._connection
        conversation = conversationOn(self._url, settings.codec.unpack)
        with connection.lock:
            joined = self._clientState.begin(conversation)
        begun = time.monotonic()
        connected = dial(self._url, settings.timeout, self._context)
        connection.attach(connected, conversation)
        with suppress(ConnectionLost):
            connection.waitFor(lambda: joined.done, max(0.0, settings.timeout - (time.monotonic() - begun)))
        if not joined.done:
            lost = ConnectionLost(f"the broker did not answer within {settings.timeout:g} seconds")
            connection.fail(lost)
            raise lost
        if joined.error is not None:
            connection.fail(self._clientState.lost)
        joined.result()
        connection.writePending()
        self._reportStates()

    def _lost(self, lost: ConnectionLost) -> bool:
        """Handle a lost connection; return whether another may follow. Called under the lock."""
        clientState = self._clientState
        if clientState.state is State.CLOSED:
            return False
        if clientState.state is State.JOINED and not self._reconnects:
            clientState.end(lost)
        else:
            clientState.lose(lost)
        self._alarm.set()
        return self._reconnects or clientState.state is None  # another address may admit a new client

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
                completed(self._reconnect(self._clientState.lost))
                ticked = time.monotonic()
                continue
            self._sendSettlements()
            self._readForServices(look)
            if every is not None and time.monotonic() - ticked >= every:
                ticked = time.monotonic()
                self._tick()

    def _readForServices(self, seconds: float) -> None:
        """Read available bytes; while many requests wait for busy threads, read on, to refuse further ones."""
        requests = self._clientState.requests
        self._connection.poll()
        if requests.size > _BACKLOG_BYTES:
            with suppress(ConnectionLost):
                self._connection.waitFor(
                    lambda: requests.size <= _BACKLOG_BYTES or self._closing.is_set(), seconds, needed=False
                )

    def _requested(self) -> None:
        if self._clientState.requests.size > _BACKLOG_BYTES:
            self._alarm.set()

    def _tick(self) -> None:
        with self._lock:
            isThere = self._clientState.tick(self._clientState.inbox.full)
        if isThere:
            self._connection.writePending()
        else:
            self._connection.fail(ConnectionLost("the broker was silent for too long"))

    async def _sleep(self, seconds: float) -> None:
        self._closing.wait(seconds)

    def _end(self, why: Exception | None) -> None:
        with self._lock:
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
                self._report(*self._states.popleft())

    def _wakeReaders(self) -> None:
        self._connection.wake()

    def _subscription(self, box: Box) -> Any:
        return Subscription(self._connection, self._clientState.inbox, box, self._unsubscribe)

    def _unsubscribe(self, box: Box | JobBox) -> None:
        with self._subscribing:
            with self._lock:
                conversation = self._clientState.conversation
                if isinstance(box, JobBox):
                    self._clientState.sendSettlements()
                    isLast, data = self._clientState.consumers.close(box), conversation.endOfConsumption(box.topic)
                else:
                    isLast, data = self._clientState.inbox.close(box), conversation.unsubscription(box.topic)
                self._connection.wake()
            if isLast and self._clientState.state is State.JOINED:
                # The PONG wakes the thread that reads for this subscription.
                self._transmit(data + conversation.ping(0), conversation)

    def _jobs(self, box: JobBox) -> Jobs:
        return Jobs(self, box)

    def _settle(self, job: Job, kind: str, more: Any) -> None:
        with self._lock:
            self._clientState.addSettlement(job, kind, more)
            consumers = self._clientState.consumers
            box = consumers.boxes.get(job.queue)
            # A thread that waits for a job may get it only after this settlement.
            isDue = box is not None and box.readers > 0
            isDue = isDue or consumers.unsent >= _TOGETHER or time.monotonic() > self._settledAt + _TURN
        if isDue or not self._hasKeeper:
            self._sendSettlements()

    def _sendSettlements(self) -> None:
        """Send the settlements so far; those of quick jobs wait for each other, at most until the next check."""
        if self._clientState.consumers.unsent:
            with self._lock:
                self._clientState.sendSettlements()
                self._settledAt = time.monotonic()
            self._connection.writePending()

    def _newWorker(self, jobs: Jobs, rules: WorkRules, concurrency: int) -> Worker:
        return Worker(jobs, rules, concurrency, self.stop_work)

    def _startServing(self) -> None:
        for _ in range(self._settings.threads):
            threading.Thread(target=self._serve, name="fleximq-server", daemon=True).start()

    def _serve(self) -> None:
        requests = self._clientState.requests
        while self._clientState.state is not State.CLOSED:
            try:
                accepted = self._connection.waitFor(
                    lambda: requests.take() or self._closing.is_set(), None, needed=False
                )
            except ConnectionLost:
                return
            if isinstance(accepted, Accepted):
                completed(self._answer(accepted))

    async def _resolved(self, value: Any) -> Any:
        return value


#: Clients that forks leave to the parent.
_clients: "WeakSet[ThreadClient]" = WeakSet()


@cache
def _watchForks() -> None:
    held = threading.local()

    def hold() -> None:
        held.locks = ExitStack()
        for client in list(_clients):
            held.locks.enter_context(client._lock)

    def abandon() -> None:
        for client in list(_clients):
            client.leaveToParent()
        held.locks.close()

    os.register_at_fork(before=hold, after_in_parent=lambda: held.locks.close(), after_in_child=abandon)
