"""The MiniMQ dialect: actions and answers for each line (MiniMQ document, docs/reference/dialects.rst).

The ids that answer PRODUCEs, and all answers after them, await the commit of their messages. A CONSUME is processed
only after the commit of this connection's own messages, so that it finds them. Consecutive PRODUCEs to one topic are
one publication, and equal CONSUMEs take their messages at once, or one by one where CONSUMEs wait (``--consume-wait``).

Measured over TCP, contents of 100 bytes pipelined in rounds of 100,000 (benchmarks, scene ``minimq``): 0.77 M PRODUCEs
(0.44 M in pure Python), 0.64 M CONSUMEs and 0.98 M ACKs a second of processor time. Where CONSUME and ACK alternate,
0.15 M of each (StringTransport).
"""

from collections.abc import Callable, Sequence
from functools import partial

from twisted.internet.interfaces import IAddress

from fleximq.broker.envelope import ConnectedClient, Envelope, QueueDelivery
from fleximq.compiled import choice
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.minimq.consume_wait import WaitingConsume
from fleximq.dialects.minimq.messages import SOURCE, MiniJoinRefused, renderAnswers, renderError
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.pull_stream import CHUNK_BYTES, PullEvent, PullSession, PullState
from fleximq.dialects.session import NamedLogger
from fleximq.errors import BadRequest, BrokerError, NoCapacity, NotKept, NotRecorded, NotStored, Unfit
from fleximq.security.principal import Admitted
from fleximq.values.message import Message
from fleximq.wire.minimq_line import NO_MESSAGE, PONG, CommandKind, decodeText, parseCommand, readAcknowledgements
from fleximq.wire.minimq_message import isSpellable, parseProduce
from fleximq.wire.ulids import newUlid

# Compared by identity: looking up an enum's member in a dict takes as long as the rest of a line.
_CONSUME = CommandKind.CONSUME
#: The beginnings of lines that are read in runs.
_PRODUCE, _ACK = b"PRODUCE:", b"ACK:"
_READY, _AWAITING_READER = PullState.READY, PullState.AWAITING_READER
#: More malformed lines in one read end the connection: answering one costs as much as processing ten others.
MALFORMED_LINES = 1000


class MiniSession(PullSession):
    """One MiniMQ client's conversation; ``newId`` returns the ids of v1.0 messages.

    Lines may be passed to :meth:`received` while ``pullState`` is READY; then :meth:`readProcessed` is called.
    """

    _log = NamedLogger(__name__)
    dialect = "minimq"
    limited = (b"PRODUCE:", b"CONSUME:")
    isLongLived = False  # the document describes one connection per command
    #: The client, from the first line on.
    _me: ConnectedClient

    def __init__(
        self, context: ListenerContext, outbox: Outbox, address: IAddress, newId: Callable[[], str] = newUlid
    ) -> None:
        super().__init__(context, outbox, address)
        self._newId = newId
        self._envelope: Envelope | None = None
        self._topicName = ""
        self._topicBytes = b""
        self._run: list[Message] = []
        self._batch: list[bytes] = []
        self._awaitOwnMessages = False
        self._awaitAllCommits = False
        self._repeated: bytes | None = None
        self._topic = ""
        self._consumes = 0
        self._taken = 0
        self._unanswered: tuple[str, int] = "", 0
        self._pendingLine: bytes | None = None
        self._wait: WaitingConsume | None = None
        self._first = b""
        self._malformed = 0

    # -- lines -------------------------------------------------------------------------------------

    def received(self, line: bytes) -> None:
        """Process a line; ignored after the end of the conversation."""
        try:
            if self.state is not ConnectionState.OPEN and not self._join(line):
                return
            if self._consumes:
                self._answerConsumes()
                if self.pullState is not _READY:
                    self._pendingLine = line
                    return
            if line.startswith(_PRODUCE):
                self._produce(line[len(_PRODUCE) :])
                return
            kind, payload = parseCommand(line)
            if self._run:
                self._publish()
            if kind is _CONSUME:
                self._consume(line, payload)
            elif kind is CommandKind.ACK:
                self.broker.acknowledgeMessages([payload], self._me)
            else:
                self._batch.append(PONG)
                self._awaitAllCommits |= self._me.consumed or self._me.settled
        except BrokerError as error:
            self.failed(error)
            self._malformed += isinstance(error, BadRequest)
            if self._malformed > MALFORMED_LINES:
                self.end("error 400")

    def receivedMany(self, lines: list[bytes]) -> int:
        """Process lines until one must wait; return how many were processed."""
        place = 0
        while place < len(lines) and self.pullState is _READY:
            count = self._runAt(lines, place) if self.state is ConnectionState.OPEN else 0
            if not count:
                self.received(lines[place])
            place += count or 1
        return place

    def _runAt(self, lines: list[bytes], place: int) -> int:
        """Process similar neighbouring lines at once; return how many, 0 if the first one needs :meth:`received`."""
        line = lines[place]
        if self._consumes:
            end = place
            while end < len(lines) and lines[end] == self._repeated:
                end += 1
            self._consumes += end - place
            return end - place
        if line.startswith(_PRODUCE):
            if self._envelope is None or self._envelope.topic.gone:
                return 0
            run = choice.readProduces(lines, place, self._topicBytes)
            self._run += run
            return len(run)
        if not line.startswith(_ACK):
            return 0
        if self._run:
            self._publish()
        ids = readAcknowledgements(lines, place)
        self.broker.acknowledgeMessages(ids, self._me)
        return len(ids)

    def readProcessed(self) -> None:
        """Send the answers to the lines so far, and close if the input has ended."""
        self.seal()
        if self.pullState is not PullState.AWAITING_TURN:
            self._malformed = 0
        if self._inputEnded and self.pullState is _READY:
            self.end("client closed")

    def readerCaughtUp(self) -> None:
        """Continue after the peer has read its answers, or after a message was loaded."""
        self.step(PullEvent.RESUME)
        self._tryTake(*self._unanswered)
        line = self._pendingLine
        if line is not None and self.pullState is _READY:
            self._pendingLine = None
            self.received(line)

    def _join(self, line: bytes) -> bool:
        """Join on the first line. Returns False if the decision is pending or negative."""
        if self.state is not ConnectionState.WAITING:
            return False
        refusal = self.refusal()
        if refusal is not None:
            raise MiniJoinRefused(refusal)
        self._first = line
        self.admit(self.certificate(), self._joined, self._joinFailed)
        if self.isChecking:
            self.step(PullEvent.CHECK)
        return self.client is not None

    def _joined(self, admitted: Admitted) -> None:
        self._me = self.letIn(admitted)

    def _joinFailed(self, error: BrokerError) -> None:
        self.failed(error)
        self.end("no capacity" if isinstance(error, NoCapacity) else f"error {int(error.status)}")

    def resume(self) -> None:
        """Process the first line, after the client has joined."""
        self.step(PullEvent.RESUME)
        self.received(self._first)

    # -- the action of each command ----------------------------------------------------------------

    def _produce(self, encoded: bytes) -> None:
        message = parseProduce(decodeText(encoded), self._newId, self._topicName)
        if message.topic != self._topicName or self._envelope is None or self._envelope.topic.gone:
            self._publish()
            topic = self.broker.topicFor(self._me, message.topic)
            self._envelope = Envelope(topic, self._me, SOURCE, 1, True)
            self._topicName = message.topic
            self._topicBytes = message.topic.encode()
        if message.reply_to and isSpellable(message.reply_to):
            self.broker.expectReplies(self._me, message.reply_to)
        self._run.append(message.asMessage())

    def _publish(self) -> None:
        """Publish the run of PRODUCEs, and answer each with its id or an error, even a later one."""
        run, self._run = self._run, []
        if not run or self._envelope is None:
            return
        batch = self._batch
        first = len(batch)
        ids = [message.message_id or "" for message in run]
        batch += ("\n".join(ids) + "\n").encode().splitlines(keepends=True)
        self._awaitOwnMessages = True
        onDecided = partial(self._reportRefused, batch, first)
        try:
            if self.context.settings.minimqIdempotent:
                self.broker.produceOnce(self._envelope, run, ids, onDecided)
            else:
                self.broker.produce(self._envelope, run, len(run), onDecided)
        except NotKept as error:
            if len(error.refused) == len(run) > 1 and not isinstance(error, NotRecorded):
                del batch[first:]
                for message in run:
                    self._run = [message]
                    self._publish()
            else:
                for each in error.each() if isinstance(error, Unfit) else (error,):
                    self._replace(batch, first, each.refused, each)
        except BrokerError as error:
            self._replace(batch, first, range(len(run)), error)

    def _reportRefused(self, batch: list[bytes], first: int, reason: str | None, indexes: Sequence[int]) -> None:
        if reason is not None:
            self._replace(batch, first, indexes, NotRecorded(reason))

    def _replace(self, batch: list[bytes], first: int, indexes: Sequence[int], error: BrokerError) -> None:
        line = renderError(error)
        for index in indexes:
            self.counted(error)
            batch[first + index] = line

    def _consume(self, line: bytes, topic: str) -> None:
        """Start a run of CONSUMEs; they are answered together on the next other line or at the end of the read."""
        if self._awaitOwnMessages:
            self.seal()
        if self.answers.waiting:
            self.step(PullEvent.COMMIT_PENDING)
            self.answers.whenSent(lambda: self._continueWith(topic))
        elif self.context.settings.consumeWait:
            self._take(topic, 1)
        else:
            self._repeated, self._topic, self._consumes = line, topic, 1

    def _answerConsumes(self) -> None:
        count, self._consumes, self._repeated = self._consumes, 0, None
        if count:
            self._tryTake(self._topic, count)

    def _tryTake(self, topic: str, count: int) -> None:
        try:
            self._take(topic, count)
        except BrokerError as error:
            for _ in range(count):
                self.failed(error)

    def _continueWith(self, topic: str) -> None:
        """Process a CONSUME that awaited the commit of this connection's messages."""
        if self.state is not ConnectionState.OPEN:
            return
        self._tryTake(topic, 1)
        if self._wait is None and self.pullState is not PullState.LOADING:
            self._continueSoon()

    def _take(self, topic: str, count: int) -> None:
        """Answer CONSUMEs in batches until the outbox is full, or wait for a message: only single ones wait."""
        while count and self.pullState is not _AWAITING_READER:
            deliveries = self._deliveries(topic, count)
            if not deliveries:
                break
            count -= len(deliveries)
            self.traffic.messagesOut += len(deliveries)
            self._answer(renderAnswers(topic, deliveries, len(deliveries)))
            if self._taken >= CHUNK_BYTES:
                self._taken = 0
                self.seal()
                self.outbox.flush()
                self._unanswered = topic, count
                if self.outbox.full:
                    self.step(PullEvent.OUTBOX_FULL)
        if not count or self.pullState is _AWAITING_READER:
            return
        queue = self.broker.queues.get(topic)
        if queue is not None and queue.preparing:
            self.step(PullEvent.LOAD)
            self._unanswered = topic, count
            self.seal()
            queue.whenPrepared(lambda: self.context.clock.callLater(0, self._loaded))
            return
        seconds = self.context.settings.consumeWait
        if not seconds or self._inputEnded:
            self._batch.append(NO_MESSAGE * count)
            return
        self.seal()
        self.step(PullEvent.QUEUE_EMPTY)
        self._wait = WaitingConsume(
            self.broker, self.context.clock, self._me, topic, seconds, lambda found: self._waited(topic, found)
        )

    def _loaded(self) -> None:
        if self.state is not ConnectionState.OPEN:
            return
        self.readerCaughtUp()
        self.seal()
        if self.pullState in (_READY, _AWAITING_READER):
            self.onReady()

    def _deliveries(self, topic: str, count: int) -> Sequence[QueueDelivery]:
        if count > 1:
            return self.broker.consumeMany(self._me, topic, count, CHUNK_BYTES)
        delivery = self.broker.consume(self._me, topic)
        return () if delivery is None else (delivery,)

    def _answer(self, lines: bytes) -> None:
        self._batch.append(lines)
        self._taken += len(lines)

    def _waited(self, topic: str, delivery: QueueDelivery | None) -> None:
        self._wait = None
        self.traffic.messagesOut += delivery is not None
        self._answer(renderAnswers(topic, [] if delivery is None else [delivery], 1))
        self._continueSoon()

    def _continueSoon(self) -> None:
        """Answer now and process later lines in the next reactor turn, because a publication may be in progress."""
        self.seal()
        self.context.clock.callLater(0, self._continue)

    def _continue(self) -> None:
        if self.state is ConnectionState.OPEN:
            self.step(PullEvent.CONTINUE)
            self.onReady()

    # -- answers and the end -----------------------------------------------------------------------

    def seal(self) -> None:
        """Answer the lines so far, once the messages whose ids the answers contain are committed."""
        self._answerConsumes()
        self._publish()
        if not self._batch:
            return
        batch, self._batch = self._batch, []
        if self._awaitAllCommits:
            self.broker.whenStored(partial(self._stored, batch, self.answers.later(batch)), self._me)
        elif self._awaitOwnMessages and not self.broker.arePublicationsDecided(self._me):
            self.broker.whenPublicationsDecided(self.answers.later(batch), self._me)
        else:
            self.answers.take(b"".join(batch))
        self._awaitOwnMessages = self._awaitAllCommits = False

    def _stored(self, batch: list[bytes], release: Callable[[], None], reason: str | None) -> None:
        """Send the answers; those to PINGs are errors if earlier ACKs are not on disk."""
        if reason is not None:
            error = NotStored(reason)
            self.counted(error)
            batch[:] = [renderError(error) if answer == PONG else answer for answer in batch]
        release()

    def answerError(self, error: BrokerError) -> None:
        """Send one ERROR line."""
        self._answerConsumes()
        self._publish()
        self._batch.append(renderError(error))

    def inputEnded(self) -> None:
        """Answer pending commands, then close; no CONSUME waits on a connection that may be dead."""
        self._inputEnded = True
        if self._wait is not None:
            self._wait.giveUp()
        elif self.pullState is _READY:
            self.end("client closed")

    def close(self) -> None:
        """Close after the last answer."""
        self._stopWaiting()
        self.seal()
        self.answers.whenSent(self.outbox.close)

    def left(self) -> None:
        """Stop waiting for a message and drop unfinished work."""
        self._stopWaiting()
        self._batch = []
        self._run = []
        self._pendingLine = None

    def rightsChanged(self, lost: Sequence[str]) -> None:
        """Drop the cached envelope, and refuse a waiting CONSUME that is not permitted any more."""
        self._envelope = None
        wait = self._wait
        if wait is None:
            return
        try:
            wait.retry()
        except BrokerError as error:
            self._stopWaiting()
            self.failed(error)
            self._continueSoon()

    def _stopWaiting(self) -> None:
        if self._wait is not None:
            self._wait.cancel()
            self._wait = None
