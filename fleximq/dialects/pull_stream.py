"""Session and protocol of dialects whose peers pull: requests are processed in order, and some must wait.

Requests of a peer that does not read its answers are left unread until it has read them, and TCP passes the pressure
on. A peer that reads none for :data:`READ_TIMEOUT` seconds is disconnected: its answers would never be freed.
"""

from collections.abc import Callable
from enum import Enum

from twisted.internet.interfaces import IAddress, IDelayedCall

from fleximq.dialects.answers import Answers
from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.session import StreamSession
from fleximq.dialects.stream import StreamProtocol
from fleximq.values.transitions import Transitions

#: Seconds for which a peer with unread answers may read none of them.
READ_TIMEOUT = 60.0
#: A session takes about so many bytes out of its queues before it checks the outbox again.
CHUNK_BYTES = 1 << 18


class PullState(Enum):
    """Whether further requests are processed, or the event they wait for."""

    READY = "requests are processed"
    CHECKING = "the credentials are being checked"
    AWAITING_COMMIT = "the client's own messages are being committed"
    AWAITING_READER = "the peer has answers to read"
    LOADING = "a message is being read from disk, or, in BlipMQ, publications are being committed"
    AWAITING_MESSAGE = "a CONSUME waits for a message"
    AWAITING_TURN = "other connections are served first"


class PullEvent(Enum):
    """A reason to wait, or to continue."""

    CHECK = "a credential check is pending"
    COMMIT_PENDING = "a CONSUME follows unanswered PRODUCEs"
    OUTBOX_FULL = "the outbox is full"
    LOAD = "the next message is on disk"
    QUEUE_EMPTY = "a CONSUME may wait, and there is no message"
    RESUME = "the check is decided, the answers are read, the message is loaded, the next turn has come"
    TURN_OVER = "processing a read has taken long"
    CONTINUE = "a CONSUME that waited for a commit or message was processed"


_S, _E = PullState, PullEvent

TRANSITIONS = Transitions(
    {
        (_S.READY, _E.CHECK): _S.CHECKING,
        (_S.READY, _E.COMMIT_PENDING): _S.AWAITING_COMMIT,
        (_S.CHECKING, _E.RESUME): _S.READY,
        (_S.AWAITING_READER, _E.RESUME): _S.READY,
        (_S.LOADING, _E.RESUME): _S.READY,
        (_S.READY, _E.TURN_OVER): _S.AWAITING_TURN,
        (_S.AWAITING_TURN, _E.RESUME): _S.READY,
        (_S.AWAITING_COMMIT, _E.CONTINUE): _S.READY,
        (_S.AWAITING_MESSAGE, _E.CONTINUE): _S.READY,
    }
    # The CONSUME after a commit may have to wait again; when it continues, that wait may be over.
    | {(state, _E.OUTBOX_FULL): _S.AWAITING_READER for state in (_S.READY, _S.AWAITING_COMMIT)}
    | {(state, _E.LOAD): _S.LOADING for state in (_S.READY, _S.AWAITING_COMMIT)}
    | {(state, _E.QUEUE_EMPTY): _S.AWAITING_MESSAGE for state in (_S.READY, _S.AWAITING_COMMIT)}
    | {(state, _E.CONTINUE): state for state in (_S.READY, _S.AWAITING_READER, _S.LOADING, _S.AWAITING_TURN)}
)


class PullSession(StreamSession):
    """Sends answers in the order of requests; ``pullState`` says whether requests are processed now.

    The protocol sets ``onReady``, which is called when the session can continue outside of a read.
    """

    def __init__(self, context: ListenerContext, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self.pullState = PullState.READY
        self.onReady: Callable[[], None] = lambda: None
        self.answers: Answers = Answers(outbox)

    def step(self, event: PullEvent) -> None:
        """Change the state."""
        self.pullState = TRANSITIONS[self.pullState, event]


class PullStreamProtocol(StreamProtocol):
    """Pauses reading instead of closing the connection of a slow reader."""

    session: PullSession
    _readTimer: IDelayedCall | None = None
    _space = 0

    def _slow(self) -> None:
        self.waitForReader()

    def waitForReader(self) -> None:
        """Pause reading until the peer has read all pending output, then call :meth:`readerCaughtUp`."""
        if self._readTimer is None:
            self.readPauses.pause(ReadPause.UNREAD)
            self._watch()
            self.outbox.whenRelieved(self._relieved)

    def readerCaughtUp(self) -> None:
        """Continue the session in the next reactor turn: this may be called during a write."""
        if self.session.pullState is PullState.AWAITING_READER:
            self._context.clock.callLater(0, self._continue)

    def _continue(self) -> None:
        if self.session.state in (ConnectionState.WAITING, ConnectionState.OPEN):
            self.work(b"")

    def _watch(self) -> None:
        self._space = self.outbox.space
        self._readTimer = self._context.clock.callLater(READ_TIMEOUT, self._checkReader)

    def _checkReader(self) -> None:
        if self.outbox.space > self._space:
            self._watch()
        else:
            self.session.slow()

    def _relieved(self) -> None:
        if self._readTimer is not None and self._readTimer.active():
            self._readTimer.cancel()
        self._readTimer = None
        self.readPauses.resume(ReadPause.UNREAD)
        self.readerCaughtUp()
