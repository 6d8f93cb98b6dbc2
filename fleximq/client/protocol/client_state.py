"""The state of a client across all its connections, without I/O: pending answers, subscriptions, buffered messages.

Every form of the client has one :class:`ClientState`. The form passes received bytes in and sends the bytes that the
state returns; frames that the state sends on its own go through ``send``. Use it from one thread at a time.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from fleximq.client.errors import (
    Answered,
    BufferFull,
    ConnectionLost,
    JoinRefused,
    RequestFailed,
    SubscribeFailed,
    Untrusted,
)
from fleximq.client.events import (
    Delivery,
    Event,
    Joined,
    Notification,
    Pinged,
    Ponged,
    Refusal,
    Reply,
    Request,
)
from fleximq.client.payloads import errorText, packed, unpacked
from fleximq.client.protocol.completion import Pending
from fleximq.client.protocol.conversation import BROKER, Conversation
from fleximq.client.protocol.inbox import Box, Inbox
from fleximq.client.protocol.loss_accounts import Account, Accounts, Holder, ThreadAccounts
from fleximq.client.protocol.refusals import Refusals
from fleximq.client.settings import ClientSettings, State
from fleximq.limits import BASE_BYTES, MEBIBYTE
from fleximq.status import FIRST_ERROR, Status

#: What is to be sent, made when it is known on which connection.
FrameMaker = Callable[[Conversation], bytes]
#: Publications are put together in chunksOf of about so many bytes, so that their number does not matter.
_CHUNK_BYTES = MEBIBYTE
#: What trying again does not change.
_PERMANENT = frozenset({Status.BAD_REQUEST, Status.UNAUTHORIZED, Status.FORBIDDEN, Status.AUTHENTICATION_FAILED})
#: After so many intervals of silence the broker is not there any more.
_MAX_SILENT_INTERVALS = 3
#: What a publication costs in the buffer besides its payload.
_OVERHEAD_BYTES = 64


_NO_FIELDS: Mapping[str, Any] = {}


class PendingSubscription(NamedTuple):
    """A subscription that was onRequest for: what to send, where it will come, and the PINGs in front of and behind it."""

    data: bytes
    box: Box
    before: Pending[Refusals]
    after: Pending[Refusals]


class ClientState:
    """The accounts of one client.

    ``state`` is None until it has joined for the first time. ``accounts`` say who has sent what may not be done yet.

    :param send: sends messages as soon as it is possible without waiting.
    :param onRelieved: called when so much waited to be taken that nothing more was to be read, and this has onState.
    :param onState: told each new state, and why.
    :param onRequest: told each request to a served path.
    :param holder: where those who publish find their accounts; by default every thread has its own.
    """

    def __init__(
        self,
        settings: ClientSettings,
        send: Callable[[bytes], None],
        onRelieved: Callable[[], None],
        onState: Callable[[State, Exception | None], None],
        onRequest: Callable[[Request], None],
        holder: Holder | None = None,
    ) -> None:
        self.settings = settings
        self.state: State | None = None
        self.conversation = Conversation()
        self.inbox = Inbox(onRelieved, settings.prefetch)
        self.accounts = Accounts(holder or ThreadAccounts())
        self.served: set[str] = set()
        self._send = send
        self._onState = onState
        self._onRequest = onRequest
        self._numbers = count(1)
        self._refusals = Refusals()
        self._barriers: dict[int, tuple[int, Pending[Refusals]]] = {}
        self._replies: dict[str, tuple[int, str, Pending[Reply]]] = {}
        self._joining: Pending[int] = Pending()
        self._joinWaiters: dict[Pending[None], None] = {}
        self._buffered: deque[tuple[Account, FrameMaker]] = deque()
        self._bufferedBytes = 0
        self._lost: ConnectionLost | None = None
        self._silentIntervals = 0

    # -- connections -------------------------------------------------------------------------------

    @property
    def needsAnswers(self) -> bool:
        """Whether somebody waits for an answer, so that reading has to go on whatever else waits to be taken."""
        return bool(self._barriers or self._replies) or not self._joining.done

    def begin(self, conversation: Conversation) -> Pending[int]:
        """Begin a conversation on a new connection; return what has the client's id when it has joined.

        It fails with JoinRefused, or ConnectionLost.
        """
        self.conversation = conversation
        self._silentIntervals = 0
        self._joining = Pending()
        conversation.begin(self.settings.credentials, self.settings.name)
        return self._joining

    def _joined(self) -> None:
        conversation = self.conversation
        # For the interval only: nobody waits for the PONG.
        self._send(conversation.ping(0, self.settings.interval))
        boxes = list(self.inbox.boxes.values())
        for box in boxes:
            self._subscribeAgain(box, isLast=box is boxes[-1])
        if not boxes:
            self._finishJoin()

    def _finishJoin(self) -> None:
        """Be there, with all subscriptions, and say what was to be conversation buffered."""
        buffered, self._buffered, self._bufferedBytes = self._buffered, deque(), 0
        for account, make in buffered:
            self._send(make(self.conversation))
            self.accounts.dropSend(account)
            self.accounts.countSent(account)
        self._enter(State.JOINED, None)
        self._joining.succeed(self.conversation.id)
        arrivals, self._joinWaiters = self._joinWaiters, {}
        for each in arrivals:
            each.succeed(None)

    def _subscribeAgain(self, box: Box, isLast: bool) -> None:
        """Subscribe for a box that had a subscription on the connection before."""
        conversation = self.conversation
        (before, first), (after, second) = self._newBarrier(), self._newBarrier()
        data = (
            conversation.ping(before)
            + conversation.subscription(box.topic, box.resumeStart())
            + conversation.ping(after)
        )
        box.isConfirmed = not box.hasStart

        def passed() -> None:
            if second.error is None:
                try:
                    self.confirmSubscription(PendingSubscription(data, box, first, second))
                except SubscribeFailed as error:
                    self.inbox.endTopic(box.topic, error)
                if isLast:
                    self._finishJoin()

        second.onDone = passed
        self._send(data)

    def lose(self, lost: ConnectionLost) -> None:
        """The connection has ended, or could not be made, and another one is going to be: who waits is told.

        Subscriptions, and what is to be sent buffered, wait for the next one.
        """
        wasJoined = self.state is State.JOINED
        self._fail(lost)
        if wasJoined:
            away = self.lost
            away.missing = tuple(name for name, box in self.inbox.boxes.items() if not box.hasStart)
            self._enter(State.AWAY, away)

    def end(self, why: Exception | None) -> None:
        """There is no connection any more, and there will be none; without an error, because that was wanted."""
        if self.state is State.CLOSED:
            return
        lost = self._lost or ConnectionLost("the client was closed")
        if why is not None:
            lost = why if isinstance(why, ConnectionLost) else ConnectionLost(str(why))
        self._fail(lost)
        arrivals, self._joinWaiters = self._joinWaiters, {}
        for each in arrivals:
            each.fail(self.lost)
        self.accounts.isOver = True
        self._enter(State.CLOSED, why)
        self.inbox.endAll(True if why is None else self.lost)

    def _fail(self, lost: ConnectionLost) -> None:
        """Tell everybody who waits for an answer that there will be none."""
        self._lost = lost = self.explained(lost)
        if self.state is State.JOINED:
            self.state = State.AWAY
            self.accounts.lose(lost)
        self._joining.fail(lost)
        barriers, self._barriers = self._barriers, {}
        replies, self._replies = self._replies, {}
        for _, barrier in barriers.values():
            barrier.fail(lost)
        for _, _, reply in replies.values():
            reply.fail(lost)

    def _enter(self, state: State, why: Exception | None) -> None:
        self.state = state
        self._onState(state, why)

    def whenJoined(self) -> Pending[None]:
        """Return what is done when there is a connection; it fails if there will be none."""
        pending: Pending[None] = Pending()
        if self.state is State.JOINED:
            pending.succeed(None)
        elif self.state is State.CLOSED:
            pending.fail(self.lost)
        else:
            self._joinWaiters[pending] = None
        return pending

    def cancelWait(self, arrival: Pending[None]) -> None:
        """Nobody waits for a connection any more."""
        self._joinWaiters.pop(arrival, None)

    @property
    def lost(self) -> ConnectionLost:
        """Why there is no connection."""
        return self._lost or ConnectionLost("the client was closed")

    def explained(self, lost: ConnectionLost) -> ConnectionLost:
        """Return the error with what the broker conversation before the end, which is often why."""
        last = self._refusals.last
        return (
            lost if last is None or str(last) in str(lost) else type(lost)(f"{lost}, and conversation before: {last}")
        )

    def tick(self, isPaused: bool) -> bool:
        """Note that an interval of keep-alive has gone by; False if the broker was silent for too many of them.

        :param isPaused: nothing is read at the moment, so silence means nothing.
        """
        if self.state is State.JOINED:
            self._silentIntervals = 0 if isPaused else self._silentIntervals + 1
            if self._silentIntervals > _MAX_SILENT_INTERVALS:
                return False
            self._send(self.conversation.ping(0))
        return True

    # -- what is sent ------------------------------------------------------------------------------

    def bufferUntilJoined(self, size: int, make: FrameMaker) -> None:
        """Keep what is to be sent until there is a connection again.

        :raises BufferFull: too much is kept already.
        :raises ConnectionLost: there will be no connection.
        """
        if self.state is State.CLOSED:
            raise self.lost
        size += _OVERHEAD_BYTES
        if self._bufferedBytes + size > self.settings.buffer:
            raise BufferFull(f"the broker is away, and {self._bufferedBytes} bytes wait for it already")
        account = self.accounts.current()
        self.accounts.beginSend(account)
        self._buffered.append((account, make))
        self._bufferedBytes += size

    # -- what is waited for ------------------------------------------------------------------------

    def _newBarrier(self) -> tuple[int, Pending[Refusals]]:
        number, pending = next(self._numbers), Pending[Refusals]()
        self._barriers[number] = self.accounts.sent, pending
        return number, pending

    def _checkJoined(self) -> None:
        # Between the end of the wait for a connection and this, it may have been lost.
        if self.state is not State.JOINED:
            raise self.lost

    def barrier(self) -> tuple[bytes, Pending[Refusals]]:
        """Return a PING, and what will have what was refused before its PONG.

        :raises ConnectionLost: there is no connection.
        """
        self._checkJoined()
        number, pending = self._newBarrier()
        return self.conversation.ping(number), pending

    def countSent(self, conversation: Conversation, account: Account) -> None:
        """Note that what was begun was sent in this conversation, which may be over by now."""
        self.accounts.dropSend(account)
        if conversation is self.conversation and self.state is State.JOINED:
            self.accounts.countSent(account)
        else:
            self.accounts.loseLate(account, self.lost)

    def checkLosses(self) -> None:
        """Do nothing if all that who runs now has sent since his last flush went over the connection there is.

        :raises ConnectionLost: part of it was sent on a connection that ended, or part of what others have sent who may
            not be told; raised once.
        """
        lost = self.accounts.takeLoss()
        if lost is not None:
            raise ConnectionLost(f"it is not known what arrived of all that was sent since the last flush: {lost}")

    def keepRefusals(self, *those: Refusals) -> None:
        """Leave to the next flush what nobody was told."""
        kept = Refusals()
        for each in (*those, self._refusals):
            kept.extend(each)
        self._refusals = kept

    def detachBarrier(self, barrier: Pending[Refusals]) -> None:
        """Leave to the next flush what is refused until a barrier for which nobody waits any more."""
        if barrier.done:
            self._keepRefusalsOf(barrier)
        else:
            barrier.onDone = lambda: self._keepRefusalsOf(barrier)

    def _keepRefusalsOf(self, barrier: Pending[Refusals]) -> None:
        if barrier.error is None:
            self.keepRefusals(barrier.result())

    def newSubscription(self, topic: str, start: object) -> "PendingSubscription":
        """Return what to send for a subscription, and what will tell whether the broker has made it.

        :raises ValueError: it cannot be beside those that are there, see :meth:`Inbox.open`.
        :raises ConnectionLost: there is no connection.
        """
        self._checkJoined()
        sub = self.conversation.subscription(topic, start)
        box = self.inbox.open(topic, start)
        (before, first), (after, second) = self._newBarrier(), self._newBarrier()
        return PendingSubscription(
            self.conversation.ping(before) + sub + self.conversation.ping(after), box, first, second
        )

    def confirmSubscription(self, made: "PendingSubscription") -> None:
        """Note that the broker has answered.

        :raises SubscribeFailed: it refused the subscription, whose box is closed.
        """
        refused = made.after.result()
        # Between the two PINGs there was the SUB, and what the broker refuses of it names nothing.
        refusal = refused.popNameless()
        self.keepRefusals(made.before.result(), refused)
        made.box.isConfirmed = True
        if refusal is not None:
            error = SubscribeFailed(refusal.status, refusal.words, made.box.topic, refusal.payload)
            self.inbox.close(made.box, error)
            raise error

    def abandonSubscription(self, made: "PendingSubscription") -> None:
        """Nobody waits for the subscription any more."""
        self.detachBarrier(made.before)
        self.detachBarrier(made.after)

    def request(self, target: int, path: str, payload: bytes) -> tuple[bytes, str, Pending[Reply]]:
        """Return a REQ, its id, and what will have the answer.

        :raises ConnectionLost: there is no connection.
        """
        self._checkJoined()
        id = f"{self.conversation.id}-{next(self._numbers)}"
        pending: Pending[Reply] = Pending()
        self._replies[id] = target, path, pending
        return self.conversation.request(target, path, payload, id), id, pending

    def forgetRequest(self, id: str) -> None:
        """Nobody waits for an answer any more."""
        self._replies.pop(id, None)

    def valueOf(self, path: str, reply: Reply) -> Any:
        """Return what an answer says.

        :raises RequestFailed: it is an error.
        :raises ValueError: its payload cannot be read.
        """
        payload = self.payloadOf(path, reply)
        return self.settings.codec.unpack(payload) if reply.sender != BROKER else unpacked(payload)

    def payloadOf(self, path: str, reply: Reply) -> bytes | memoryview:
        """Return an answer as it came.

        :raises RequestFailed: it is an error.
        """
        if reply.status >= FIRST_ERROR:
            raise RequestFailed(reply.status, errorText(reply.payload), path, bytes(reply.payload))
        return reply.payload

    def answer(self, to: Request, value: object) -> bytes:
        """Return the REP that gives a value."""
        return self.conversation.reply(to, self.settings.codec.pack(value))

    def failure(self, to: Request, error: BaseException) -> bytes:
        """Return the REP that tells of an error: its own, or 500 if it has none."""
        if isinstance(error, Answered):
            return self.conversation.reply(to, packed(error.words), error.status)
        return self.conversation.reply(to, packed("the service failed"), Status.INTERNAL_SERVER_ERROR)

    # -- what is heard -----------------------------------------------------------------------------

    def dataReceived(self, data: bytes) -> None:
        """Take what was read.

        :raises BadFraming: the other side does not speak FlexiMQ; nothing can be read after that.
        :raises TooLarge: a message is over the limit; likewise.
        """
        for each in self.conversation.runs(data):
            if isinstance(each, list):
                self.delivered(each)
            else:
                self.received(each)

    def delivered(self, run: list[Delivery]) -> None:
        """Put deliveries of one topic where they are waited for."""
        self._silentIntervals = 0
        overrun = self.inbox.putRun(run)
        if overrun is not None:
            self.inbox.overrun(overrun)
            self._send(self.conversation.unsubscription(overrun.topic))

    def received(self, event: Event) -> None:
        """Leave an event where it is waited for."""
        self._silentIntervals = 0
        if isinstance(event, Delivery):
            self.delivered([event])
        elif isinstance(event, Reply):
            request = self._replies.get(event.id)
            if request is not None and event.sender in (request[0], BROKER):
                del self._replies[event.id]
                request[2].succeed(event)
        elif isinstance(event, Ponged):
            passed = self._barriers.pop(event.timestamp, None)
            if passed is not None:
                number, barrier = passed
                self.accounts.confirmed = max(self.accounts.confirmed, number)
                refusals, self._refusals = self._refusals, Refusals()
                barrier.succeed(refusals)
        elif isinstance(event, Refusal):
            self._refused(event)
        elif isinstance(event, Request):
            if event.path in self.served:
                self._onRequest(event)
            else:
                self._send(self.conversation.reply(event, packed("nothing is served here"), Status.NOT_FOUND))
        elif isinstance(event, Notification):
            self.inbox.putDirect(event)
        elif isinstance(event, Pinged):
            self._send(self.conversation.pong(event.timestamp))
        elif isinstance(event, Joined):
            self._joined()

    def _refused(self, event: Refusal) -> None:
        if not self.conversation.id:
            self._joining.fail(JoinRefused(event.status, event.words, event.path, event.payload))
        elif not self.inbox.refused(event):
            self._refusals.add(event)


def headerFields(
    key: str | bytes | None,
    message_id: str | None,
    correlation_id: str | None,
    reply_to: str | None,
    headers: Mapping[str, Any] | None,
) -> Mapping[str, Any]:
    """Return the header fields of a publication besides its topic.

    :raises ValueError: ``headers`` contains ``topic``, or a field that is also given as an argument.
    """
    if headers is None and key is message_id is correlation_id is reply_to is None:
        return _NO_FIELDS
    named = {"key": key, "message_id": message_id, "correlation_id": correlation_id, "reply_to": reply_to}
    fields = {name: value for name, value in named.items() if value is not None}
    clash = {"topic", *fields} & (headers or {}).keys()
    if clash:
        raise ValueError(f"headers must not contain {', '.join(sorted(clash))}, which is given as an argument")
    return fields | dict(headers or {})


def publicationOf(topic: str, payload: bytes, fields: Mapping[str, Any]) -> FrameMaker:
    """Return a function that makes the PUB frame."""
    if fields:
        return lambda conversation: conversation.publication(topic, payload, fields)
    return lambda conversation: conversation.publication(topic, payload)


def chunksOf(
    topic: str, values: Iterable[object], pack: Callable[[Any], bytes] = packed
) -> Iterator[tuple[int, FrameMaker]]:
    """Yield what makes many PUBs of these values, about a MiB at once, and the bytes of the payloads in it.

    As long as all of a chunk are bytes they are taken as they are, and packed when they are put together.
    """
    chunk: list[bytes] = []
    size, head, areBinary = 0, len(topic) + BASE_BYTES, pack is packed
    for value in values:
        if areBinary and type(value) is bytes:
            payload = value
        else:
            payload = pack(value)
            if areBinary:
                chunk, areBinary = list(map(pack, chunk)), False
        chunk.append(payload)
        size += len(payload) + head
        if size >= _CHUNK_BYTES:
            yield size, _publications(topic, chunk, areBinary)
            chunk, size, areBinary = [], 0, pack is packed
    if chunk:
        yield size, _publications(topic, chunk, areBinary)


def _publications(topic: str, payloads: list[bytes], areBinary: bool) -> FrameMaker:
    return lambda conversation: conversation.publications(topic, payloads, areBinary)


def isTransient(error: Exception) -> bool:
    """Tell whether another attempt to connect may succeed where one has failed with this error."""
    return not isinstance(error, Untrusted) and not (isinstance(error, JoinRefused) and error.status in _PERMANENT)
