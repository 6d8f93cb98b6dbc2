"""The state of a client across all its connections, without I/O: pending answers, subscriptions, buffered messages.

The form of the client passes received bytes in, and sends the bytes that the state returns or gives to ``send``. Use it
from one thread at a time.
"""

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from secrets import token_urlsafe
from typing import Any, NamedTuple

from fleximq.client import events
from fleximq.client.errors import (
    BufferFull,
    ConnectionLost,
    JoinRefused,
    NotSettled,
    Overrun,
    PublishFailed,
    RequestFailed,
    SubscribeFailed,
)
from fleximq.client.events import BROKER, Delivery, Event, Refusal, Reply, Request
from fleximq.client.jobs import Job, Settle
from fleximq.client.payloads import errorText, isQueueError, packed, unpacked
from fleximq.client.protocol.accepted_requests import AcceptedRequests
from fleximq.client.protocol.completion import Pending, resolveAll
from fleximq.client.protocol.consumers import SETTLE, Consumers, JobBox
from fleximq.client.protocol.conversation import Conversation
from fleximq.client.protocol.inbox import Box, Inbox
from fleximq.client.protocol.publications import FrameMaker
from fleximq.client.protocol.unconfirmed import Account, Accounts, ContextAccounts, Refusals, ThreadAccounts
from fleximq.client.settings import ClientSettings, State
from fleximq.status import FIRST_ERROR, Status
from fleximq.values.printable import shortened

#: The connection is given up after this many silent intervals.
_MAX_SILENT_INTERVALS = 3
#: Memory for a buffered publication, in addition to its payload.
_OVERHEAD_BYTES = 64


class PendingSubscription(NamedTuple):
    """A SUB between two PINGs, the box for its deliveries, and the PINGs' results; the second confirms the SUB."""

    data: bytes
    box: Box | JobBox
    before: Pending[Refusals]
    after: Pending[Refusals]


class ClientState:
    """The pending operations and subscriptions of one client; ``state`` is None until the first JOIN succeeds.

    :param send: sends frames without waiting, as soon as possible.
    :param sendAnswer: sends one that other clients or the broker can cause, or drops it if too many are unsent.
    :param onRelieved: called when the unread bytes fall below the limit for reading.
    :param onState: called with each new state and its reason.
    :param onRequest: called when ``requests`` has another one, to a served path.
    :param settle: settles a job, by :meth:`addSettlement` and later :meth:`sendSettlements`.
    :param holder: returns the account of the running thread or task, its unconfirmed messages; by default each thread
        has its own.
    """

    def __init__(
        self,
        settings: ClientSettings,
        send: Callable[[bytes], None],
        sendAnswer: Callable[[bytes], None],
        onRelieved: Callable[[], None],
        onState: Callable[[State, Exception | None], None],
        onRequest: Callable[[], None],
        settle: Settle,
        holder: ContextAccounts | None = None,
    ) -> None:
        self.settings = settings
        self.state: State | None = None
        self.conversation = Conversation()
        self.inbox = Inbox(onRelieved, self._overrun, settings.prefetch)
        self.consumers = Consumers(settle)
        self.requests = AcceptedRequests(settings.prefetch)
        self.accounts = Accounts(holder or ThreadAccounts())
        self.served: dict[str, Callable[[Request], Any]] = {}
        self._send = send
        self._sendAnswer = sendAnswer
        self._onState = onState
        self._onRequest = onRequest
        self._numbers = count(1)
        self._refusals = Refusals()
        self._lastRefusal: PublishFailed | None = None
        self._barriers: dict[int, tuple[int, Pending[Refusals]]] = {}
        self._replies: dict[str, tuple[int | str, Pending[Reply]]] = {}
        self._joining: Pending[int] = Pending()
        self._joinWaiters: list[Pending[None]] = []
        self._buffered: deque[tuple[Account, FrameMaker]] = deque()
        self._bufferedBytes = 0
        self._lost: ConnectionLost | None = None
        self._silentIntervals = 0

    # -- connections -------------------------------------------------------------------------------

    @property
    def needsAnswers(self) -> bool:
        """Whether a call waits for an answer, so reading must continue even if the inbox is full."""
        return bool(self._barriers or self._replies) or not self._joining.done

    def begin(self, conversation: Conversation) -> Pending[int]:
        """Start a new connection; the result is the client's id, or JoinRefused or ConnectionLost."""
        self.conversation = conversation
        self._silentIntervals = 0
        self._lastRefusal = None
        self._joining = Pending()
        conversation.begin(self.settings.credentials, self.settings.name)
        return self._joining

    def _joined(self) -> None:
        conversation = self.conversation
        # Announces the interval; the PONG is ignored.
        self._send(conversation.ping(0, self.settings.interval))
        self.inbox.putGaps()
        boxes: list[Box | JobBox] = [*self.inbox.boxes.values(), *self.consumers.boxes.values()]
        for box in boxes:
            self._subscribeAgain(box, isLast=box is boxes[-1])
        if not boxes:
            self._finishJoin()

    def _finishJoin(self) -> None:
        """Send buffered messages and become joined, after all subscriptions are restored."""
        buffered, self._buffered, self._bufferedBytes = self._buffered, deque(), 0
        for account, make in buffered:
            self._send(make(self.conversation))
            self.accounts.dropSend(account)
            self.accounts.countSent(account)
        self._enter(State.JOINED, None)
        self._joining.succeed(self.conversation.id)
        resolveAll(self._joinWaiters)

    def _subscribeAgain(self, box: Box | JobBox, isLast: bool) -> None:
        """Restore the subscription or the consumer of a box after a reconnect."""
        made = self._betweenBarriers(self._subOf(box), box)

        def passed() -> None:
            if made.after.error is None:
                try:
                    self.confirmSubscription(made)
                except SubscribeFailed as error:
                    if isinstance(box, Box):
                        self.inbox.endTopic(box.topic, error)
                if isLast:
                    self._finishJoin()

        made.after.onDone = passed
        self._send(made.data)

    def _subOf(self, box: Box | JobBox) -> bytes:
        if isinstance(box, JobBox):
            return self.conversation.consumption(box.topic, box.prefetch)
        box.isConfirmed = not box.hasStart
        return self.conversation.subscription(box.topic, box.resumeStart())

    def _betweenBarriers(self, sub: bytes, box: Box | JobBox) -> PendingSubscription:
        (first, before), (second, after) = self._newBarrier(), self._newBarrier()
        data = self.conversation.ping(first) + sub + self.conversation.ping(second)
        return PendingSubscription(data, box, before, after)

    @property
    def isAdmitted(self) -> bool:
        """Whether the broker has accepted the JOIN, and the connection has not ended; the state is JOINED only when the
        subscriptions are made again, and requests may arrive before.
        """
        return self.state is State.JOINED or (self.conversation.id != 0 and not self._joining.done)

    def lose(self, lost: ConnectionLost) -> None:
        """Fail calls that wait for an answer; subscriptions and buffered messages wait for the next connection."""
        wasJoined = self.state is State.JOINED
        self._fail(lost)
        if wasJoined:
            away = self.lost
            away.missing = tuple(name for name, box in self.inbox.boxes.items() if not box.hasStart)
            away.queues = tuple(self.consumers.boxes)
            self._enter(State.AWAY, away)

    def end(self, why: Exception | None) -> None:
        """Close for good; ``why`` is None if the program has closed the client."""
        if self.state is State.CLOSED:
            return
        lost = self._lost or ConnectionLost("the client was closed")
        if why is not None:
            lost = why if isinstance(why, ConnectionLost) else ConnectionLost(str(why))
        self._fail(lost)
        resolveAll(self._joinWaiters, self.lost)
        self.accounts.isOver = True
        self._enter(State.CLOSED, why)
        self.inbox.closeAll(True if why is None else self.lost)
        self.consumers.closeAll(True if why is None else self.lost)

    def _fail(self, lost: ConnectionLost) -> None:
        self._lost = lost = self.explained(lost)
        self.requests.dropWaiting()
        if self.state is State.JOINED:
            self.state = State.AWAY
            if self.accounts.lose(lost):
                # That error tells them: a later flush must not, as if the messages after them were refused.
                self._lastRefusal, lost.refused = self._refusals.last, self._refusals.all
                self._refusals = Refusals()
        self.consumers.lose()
        self._joining.fail(lost)
        barriers, self._barriers = self._barriers, {}
        replies, self._replies = self._replies, {}
        for _, barrier in barriers.values():
            barrier.fail(lost)
        for _, reply in replies.values():
            reply.fail(lost)

    def _enter(self, state: State, why: Exception | None) -> None:
        self.state = state
        self._onState(state, why)

    def whenJoined(self) -> Pending[None]:
        """Return a result that succeeds when the client is joined, and fails when it is closed."""
        pending: Pending[None] = Pending()
        if self.state is State.JOINED:
            pending.succeed(None)
        elif self.state is State.CLOSED:
            pending.fail(self.lost)
        else:
            self._joinWaiters.append(pending)
        return pending

    def cancelWait(self, waiter: Pending[None]) -> None:
        """Forget a result of :meth:`whenJoined`."""
        with suppress(ValueError):
            self._joinWaiters.remove(waiter)

    @property
    def lost(self) -> ConnectionLost:
        """The reason for the missing connection."""
        return self._lost or ConnectionLost("the client was closed")

    def explained(self, lost: ConnectionLost) -> ConnectionLost:
        """Add the broker's last refusal, which is often the reason, to an error."""
        last = self._refusals.last or self._lastRefusal
        return lost if last is None or str(last) in str(lost) else type(lost)(f"{lost}, and said before: {last}")

    def tick(self, isPaused: bool) -> bool:
        """Count a keep-alive interval, unless the client does not read, and send a PING.

        Returns False if the broker was silent for too many intervals.
        """
        if self.state is State.JOINED:
            self._silentIntervals = 0 if isPaused else self._silentIntervals + 1
            if self._silentIntervals > _MAX_SILENT_INTERVALS:
                return False
            self._send(self.conversation.ping(0))
        return True

    def bufferUntilJoined(self, size: int, make: FrameMaker) -> None:
        """Buffer a message until the client is connected again; raises BufferFull, or ConnectionLost after the end."""
        if self.state is State.CLOSED:
            raise self.lost
        size += _OVERHEAD_BYTES
        if self._bufferedBytes + size > self.settings.buffer:
            raise BufferFull(f"the broker is unreachable, and the buffer already holds {self._bufferedBytes} bytes")
        account = self.accounts.current()
        self.accounts.beginSend(account)
        self._buffered.append((account, make))
        self._bufferedBytes += size

    def _newBarrier(self) -> tuple[int, Pending[Refusals]]:
        self.sendSettlements()
        number, pending = next(self._numbers), Pending[Refusals]()
        self._barriers[number] = self.accounts.sent, pending
        return number, pending

    def _checkJoined(self) -> None:
        # The connection may have been lost since the wait for it ended.
        if self.state is not State.JOINED:
            raise self.lost

    def barrier(self) -> tuple[bytes, Pending[Refusals]]:
        """Return a PING, and a result with the refusals before its PONG; raises ConnectionLost while not connected."""
        self._checkJoined()
        number, pending = self._newBarrier()
        return self.conversation.ping(number), pending

    def countSent(self, conversation: Conversation, account: Account) -> None:
        """Count a message as sent on ``conversation``, which may have ended since."""
        self.accounts.dropSend(account)
        if conversation is self.conversation and self.state is State.JOINED:
            self.accounts.countSent(account)
        else:
            self.accounts.loseLate(account, self.lost)

    def checkLosses(self) -> None:
        """Raise the loss of messages that the running thread or task, or one that has ended, sent since its last flush.

        :raises ConnectionLost: a connection ended before the broker confirmed them. Raised once.
        """
        lost = self.accounts.takeLoss()
        if lost is not None:
            told = ConnectionLost(f"messages sent since the last flush may be lost: {lost}")
            told.refused = lost.refused
            raise told

    def keepRefusals(self, *those: Refusals) -> None:
        """Save refusals for the next flush."""
        self._refusals = Refusals((*those, self._refusals))

    def detachBarrier(self, barrier: Pending[Refusals]) -> None:
        """Save the refusals of a barrier for the next flush, since its caller has stopped waiting."""

        def keep() -> None:
            if barrier.error is None:
                self.keepRefusals(barrier.result())

        if barrier.done:
            keep()
        else:
            barrier.onDone = keep

    def newSubscription(self, topic: str, start: object, gaps: bool = False) -> PendingSubscription:
        """Return a new subscription; raises ValueError as :meth:`Inbox.open`, ConnectionLost while not connected."""
        self._checkJoined()
        sub = self.conversation.subscription(topic, start)
        return self._betweenBarriers(sub, self.inbox.open(topic, start, gaps))

    def newConsumer(self, queue: str, prefetch: int) -> PendingSubscription:
        """Return a new consumer; errors as :meth:`Consumers.open`, and ConnectionLost while not connected."""
        self._checkJoined()
        box = self.consumers.open(queue, prefetch)
        return self._betweenBarriers(self._subOf(box), box)

    def halt(self, box: JobBox) -> None:
        """Return the unread jobs of a consumer to its queue, and have the broker deliver no more while others run."""
        if box.end is None:
            self.consumers.halt(box)
            self.setPrefetch(box, 0)
            self.sendSettlements()

    def setPrefetch(self, box: JobBox, prefetch: int) -> None:
        """Change the maximum number of unsettled deliveries of a consumer; 0: it gets no more."""
        box.prefetch = prefetch
        if self.state is State.JOINED:
            self._send(self._subOf(box))

    def addSettlement(self, job: Job, kind: str, more: Any) -> None:
        """Add a settlement, which counts as a message that the next flush confirms; errors as :meth:`Consumers.add`."""
        self.consumers.add(job, kind, more)
        self.accounts.countSent(self.accounts.current())

    def sendSettlements(self) -> None:
        """Send the settlements so far: one notification for each queue."""
        if self.consumers.unsent:
            for each in self.consumers.take():
                self._send(self.conversation.notification([BROKER], SETTLE, packed(each)))

    def confirmSubscription(self, made: PendingSubscription) -> None:
        """Evaluate the answer to a SUB; raises SubscribeFailed and closes the box if the broker has refused it."""
        refusal = made.after.result().popNameless()  # sent between the two PINGs, without a path
        self.keepRefusals(made.before.result(), made.after.result())
        made.box.isConfirmed = True
        if refusal is not None:
            error = SubscribeFailed(refusal.status, refusal.words, made.box.topic, refusal.payload)
            if isinstance(made.box, JobBox):
                self.consumers.close(made.box, error)
            else:
                self.inbox.close(made.box, error)
            raise error

    def request(self, target: int | str, path: str, payload: bytes) -> tuple[bytes, str, Pending[Reply]]:
        """Return a REQ, its id, and a result for the answer; raises ConnectionLost while not connected."""
        self._checkJoined()
        # Random, because any client may answer a request to a name: one that was not asked must not guess the id.
        requestId = token_urlsafe(12)
        pending: Pending[Reply] = Pending()
        self._replies[requestId] = target, pending
        return self.conversation.request(target, path, payload, requestId), requestId, pending

    def forgetRequest(self, requestId: str) -> None:
        """Ignore the answer to a request."""
        self._replies.pop(requestId, None)

    def valueOf(self, path: str, reply: Reply) -> Any:
        """Return the decoded value of an answer; raises RequestFailed, or ValueError if it cannot be decoded."""
        payload = self.payloadOf(path, reply)
        return self.settings.codec.unpack(payload) if reply.sender != BROKER else unpacked(payload)

    def payloadOf(self, path: str, reply: Reply) -> bytes | memoryview:
        """Return the encoded payload of an answer; raises RequestFailed if the answer is an error."""
        if reply.status >= FIRST_ERROR:
            raise RequestFailed(reply.status, errorText(reply.payload), path, bytes(reply.payload))
        return reply.payload

    # -- what is heard -----------------------------------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """Handle received bytes; errors as :meth:`Conversation.runs`."""
        for each in self.conversation.runs(data):
            if isinstance(each, list):
                self.delivered(each)
            else:
                self.received(each)

    def delivered(self, run: list[Delivery]) -> None:
        """Put deliveries of one topic into the boxes of their subscriptions."""
        self._silentIntervals = 0
        if self.consumers.areUsed and all(map(self.consumers.put, run)):
            return
        self.inbox.putRun(run)

    def _overrun(self, box: Box) -> None:
        error = Overrun(f"the subscription to {box.topic} was ended, since {box.size} bytes were unread")
        self.inbox.endTopic(box.topic, error)
        self._send(self.conversation.unsubscription(box.topic))

    def received(self, event: Event) -> None:
        """Handle one event."""
        self._silentIntervals = 0
        if isinstance(event, Delivery):
            self.delivered([event])
        elif isinstance(event, Reply):
            request = self._replies.get(event.id)
            # A name may mean any client.
            if request is not None and (isinstance(request[0], str) or event.sender in (request[0], BROKER)):
                del self._replies[event.id]
                request[1].succeed(event)
        elif isinstance(event, events.Ponged):
            passed = self._barriers.pop(event.timestamp, None)
            if passed is not None:
                number, barrier = passed
                self.accounts.confirmed = max(self.accounts.confirmed, number)
                refusals, self._refusals = self._refusals, Refusals()
                barrier.succeed(refusals)
        elif isinstance(event, Refusal):
            self._refused(event)
        elif isinstance(event, Request):
            self._requested(event)
        elif isinstance(event, events.Notification):
            self.inbox.putDirect(event)
        elif isinstance(event, events.Pinged):
            self._sendAnswer(self.conversation.pong(event.timestamp))
        elif isinstance(event, events.Joined):
            self._joined()

    def _requested(self, request: Request) -> None:
        if request.path not in self.served:
            words, status = f"nothing is served at {shortened(request.path)!r}", Status.NOT_FOUND
        elif not self.requests.accept(request):
            words, status = "this client has too many unanswered requests", Status.SERVICE_UNAVAILABLE
        else:
            self._onRequest()
            return
        self._sendAnswer(self.conversation.reply(request, packed(words), status))

    def _refused(self, event: Refusal) -> None:
        if not self.conversation.id:
            self._joining.fail(JoinRefused(*event))
        elif event.path == SETTLE:
            self._refusals.add(NotSettled(*event))
        elif not self._consumerEnded(event) and not self.inbox.refused(event):
            self._refusals.add(PublishFailed(*event))

    def _consumerEnded(self, refusal: Refusal) -> bool:
        """End a consumer whose client may not use its queue any more."""
        box = self.consumers.boxes.get(refusal.path)
        if box is None or refusal.status != Status.SUBSCRIPTION_FAILED or not isQueueError(refusal.payload):
            return False
        return self.consumers.close(box, SubscribeFailed(*refusal))
