"""The FlexiMQ client for any event loop, shared by the forms for asyncio and Twisted.

It is used from the loop's own thread. Everything published in one turn of the loop is written at its end.
"""

import inspect
import logging
from collections.abc import Awaitable, Sequence
from typing import Any, TypeVar

from fleximq.client.contexts import MessageIterator
from fleximq.client.errors import ConnectionLost
from fleximq.client.events import Delivery, Notification
from fleximq.client.jobs import Job
from fleximq.client.loops.box_waiting import BoxWaiting
from fleximq.client.loops.connection import DRAIN_BYTES, Cancel, Loop
from fleximq.client.loops.link import LoopLink
from fleximq.client.loops.worker import LoopJobs, LoopWorker
from fleximq.client.protocol.client_state import ClientState
from fleximq.client.protocol.completion import Pending
from fleximq.client.protocol.consumers import JobBox
from fleximq.client.protocol.conversation import Conversation, conversationOn
from fleximq.client.protocol.inbox import Box, BoxReader
from fleximq.client.protocol.publications import FrameMaker
from fleximq.client.protocol.queue_operations import QueueOperations
from fleximq.client.protocol.unconfirmed import ContextAccounts
from fleximq.client.protocol.work_rules import WorkRules
from fleximq.client.settings import ClientSettings, State
from fleximq.values.urls import Url

_log = logging.getLogger(__name__)
#: Requests that are answered at once; further ones wait.
_MAX_ANSWERS = 1000
#: Settlements that are sent together, at most.
_TOGETHER = 1000
T = TypeVar("T")
M = TypeVar("M", bound=Delivery | Notification)


class LoopClient(LoopLink, QueueOperations["LoopSubscription[Delivery]", "LoopSubscription[Notification]", LoopJobs]):
    """A connection to a broker; it reconnects by itself.

    Values are of the types that MessagePack, or the ``codec``, can encode; others raise TypeError, ValueError or
    OverflowError before they are sent. While the broker is unreachable, publications are buffered up to ``buffer``
    bytes. When the connection is lost, calls that wait for an answer raise
    :class:`~fleximq.client.errors.ConnectionLost`.
    """

    _dialect = "FlexiMQ"
    _mayWait = True

    def __init__(self, loop: Loop, urls: Sequence[Url], settings: ClientSettings) -> None:
        super().__init__(loop, urls, settings, _log)
        holder = ContextAccounts(loop.currentTask)
        connection = self._connection
        self._clientState = ClientState(
            settings, connection.send, connection.sendAnswer, self._resume, self._report, self._requested,
            self._settle, holder,
        )  # fmt: skip
        self._paused = False
        self._answers = 0
        self._areSettling = False
        self._workers = set()

    def claim(self) -> None:
        """Attribute the next publication to the caller, even if it is sent in a copy of the caller's context."""
        self._clientState.accounts.current()

    async def _post(self, size: int, make: FrameMaker) -> None:
        clientState = self._clientState
        if clientState.state is not State.JOINED:
            clientState.bufferUntilJoined(size, make)
            return
        connection = self._connection
        connection.send(make(clientState.conversation))
        clientState.accounts.countSent(clientState.accounts.current())
        if connection.waiting >= DRAIN_BYTES or connection.isPaused:
            await connection.drain()

    def _transmit(self, data: bytes, conversation: Conversation) -> None:
        self._connection.sendNow(data)
        self._resume()

    async def _sendReply(self, data: bytes, conversation: Conversation) -> None:
        await self._connection.room()
        if conversation is self._clientState.conversation:
            self._connection.sendNow(data)

    def _framed(self, data: bytes) -> bytes:
        """Return the bytes to write: those due on the connection itself, then the framed messages."""
        conversation = self._clientState.conversation
        framed = conversation.framed(data) if data else data
        if conversation.toSend:
            framed = b"".join((*conversation.toSend, framed))
            conversation.toSend.clear()
        return framed

    def _await(self, pending: Pending[T], timeout: float | None, what: str) -> Awaitable[T]:
        return self._loop.wait(pending, timeout, what)

    def _begin(self) -> None:
        self._joining = self._clientState.begin(conversationOn(self._url, self._settings.codec.unpack))

    async def _handshake(self) -> None:
        await self._loop.wait(self._joining, self._attempt.timeout, "")

    def _tick(self) -> bool:
        return self._clientState.tick(self._paused)

    def _connected(self) -> None:
        self._paused = False
        self._connection.writePending()

    def _parse(self, data: bytes) -> None:
        clientState = self._clientState
        clientState.dataReceived(data)
        if clientState.conversation.toSend and not self._connection.isPaused:
            self._connection.writePending()
        transport = self._connection.transport
        if not self._paused and clientState.inbox.full and not clientState.needsAnswers and transport is not None:
            self._paused = True
            transport.pauseReading()

    def _resume(self) -> None:
        if self._paused:
            self._paused = False
            if self._connection.transport is not None:
                self._connection.transport.resumeReading()

    def _lost(self, lost: ConnectionLost) -> None:
        self._clientState.lose(lost)

    def _closed(self, why: Exception | None) -> None:
        self._clientState.end(why)

    def _subscription(self, box: Box) -> Any:
        return LoopSubscription(self, box)

    def _unsubscribe(self, box: Box | JobBox) -> None:
        clientState = self._clientState
        if isinstance(box, JobBox):
            clientState.sendSettlements()
            isLast, data = clientState.consumers.close(box), clientState.conversation.endOfConsumption(box.topic)
        else:
            isLast, data = clientState.inbox.close(box), clientState.conversation.unsubscription(box.topic)
        if isLast and clientState.state is State.JOINED:
            self._connection.send(data)

    def _jobs(self, box: JobBox) -> LoopJobs:
        return LoopJobs(self, box)

    def _settle(self, job: Job, kind: str, more: Any) -> None:
        self._clientState.addSettlement(job, kind, more)
        if not self._areSettling:
            self._areSettling = True
            self._loop.later(0, self._sendSettlements)
        elif self._clientState.consumers.unsent >= _TOGETHER:
            self._clientState.sendSettlements()

    def _sendSettlements(self) -> None:
        """Send the settlements of one turn of the loop."""
        self._areSettling = False
        self._clientState.sendSettlements()
        self._connection.writePending()

    def _newWorker(self, jobs: LoopJobs, rules: WorkRules, concurrency: int) -> LoopWorker:
        return LoopWorker(self._loop, jobs, rules, concurrency)

    def _requested(self) -> None:
        if self._answers < _MAX_ANSWERS:
            self._startAnswer()

    def _startAnswer(self) -> None:
        running: list[Cancel] = []
        isOver = False
        self._answers += 1

        async def answer() -> None:
            nonlocal isOver
            requests = self._clientState.requests
            await self._connection.room()
            accepted = requests.take()
            if accepted is not None:
                await self._answer(accepted)
            isOver = True
            self._cancels.difference_update(running)
            self._answers -= 1
            if self._answers == _MAX_ANSWERS - 1 and requests.waiting:
                self._startAnswer()

        running.append(self._loop.start(answer()))
        if not isOver:
            self._cancels.update(running)

    async def _resolved(self, value: Any) -> Any:
        return await value if inspect.isawaitable(value) else value


class LoopSubscription(BoxReader, BoxWaiting, MessageIterator[M]):
    """The messages of a topic or pattern, in order: iterate over it, or call :meth:`next`.

    While the subscriptions of a client hold more than ``prefetch`` unread bytes, the client stops reading, unless a
    call waits for an answer; the broker then treats it as a slow consumer.
    """

    def __init__(self, client: LoopClient, box: Box) -> None:
        BoxWaiting.__init__(self, client._loop, box)
        self._client = client
        self._take = client._clientState.inbox.take

    async def __anext__(self) -> M:
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
        while not self._box.waiting:
            if not await self._news(timeout, "a delivery"):
                return None
        return self._take(self._box)  # type: ignore[no-any-return]

    def close(self) -> None:
        """Unsubscribe; unread deliveries can still be read."""
        self._client._unsubscribe(self._box)
