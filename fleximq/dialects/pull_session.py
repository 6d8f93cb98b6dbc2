"""The base of sessions whose peers pull: requests are processed in order, and some must wait."""

from collections.abc import Callable
from enum import Enum

from twisted.internet.interfaces import IAddress

from fleximq.dialects.answers import Answers
from fleximq.dialects.context import Context
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.session import StreamSession
from fleximq.values.transitions import Transitions


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

    def __init__(self, context: Context, outbox: Outbox, address: IAddress) -> None:
        super().__init__(context, outbox, address)
        self.pullState = PullState.READY
        self.onReady: Callable[[], None] = lambda: None
        self.answers: Answers = Answers(outbox)

    def step(self, event: PullEvent) -> None:
        """Change the state."""
        self.pullState = TRANSITIONS[self.pullState, event]
