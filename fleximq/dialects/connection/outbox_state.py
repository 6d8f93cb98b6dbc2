"""The states of an outbox, and their transitions."""

from enum import Enum

from fleximq.values.transitions import Transitions


class OutboxState(Enum):
    """The state of a connection's output."""

    WRITING = "writes at the end of each turn"
    PAUSED = "buffers, as the peer does not read"
    OVERFLOWED = "buffers, and has reported a slow consumer"
    DRAINING = "accepts no output, and closes when the peer has read the backlog"
    HALF_CLOSED = "has passed all output to the transport, and may await the peer's end"
    CLOSED = "closed, aborted or lost"


class OutboxEvent(Enum):
    """A reason to change the state."""

    PAUSE = "the transport is full"
    OVERFLOW = "the policy has given up on the consumer"
    RESUME = "the transport has sent everything"
    CLOSE = "the session has ended"
    END = "the peer has ended its side, or is not awaited"
    LOSE = "aborted or lost"


class HalfClose(Enum):
    """Whether :attr:`OutboxState.HALF_CLOSED` awaits the peer's end."""

    NEVER = "close at once"
    WANTED = "await the peer's end"
    PEER_ENDED = "the peer has ended its side already"


_S, _E = OutboxState, OutboxEvent

#: Passing on the backlog may fill the transport again: so the states after RESUME have a PAUSE.
TRANSITIONS = Transitions(
    {
        (_S.WRITING, _E.PAUSE): _S.PAUSED,
        (_S.WRITING, _E.RESUME): _S.WRITING,
        (_S.WRITING, _E.CLOSE): _S.HALF_CLOSED,
        (_S.PAUSED, _E.OVERFLOW): _S.OVERFLOWED,
        (_S.PAUSED, _E.RESUME): _S.WRITING,
        (_S.PAUSED, _E.CLOSE): _S.DRAINING,
        (_S.OVERFLOWED, _E.RESUME): _S.WRITING,
        (_S.OVERFLOWED, _E.CLOSE): _S.DRAINING,
        (_S.DRAINING, _E.RESUME): _S.HALF_CLOSED,
        (_S.HALF_CLOSED, _E.PAUSE): _S.DRAINING,
        (_S.HALF_CLOSED, _E.END): _S.CLOSED,
    }
    | {(state, _E.LOSE): _S.CLOSED for state in _S}
)
