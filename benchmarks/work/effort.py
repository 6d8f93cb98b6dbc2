"""How long and how large runs are."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from benchmarks.peers.peer import Peer

#: What a run found, by the name of the figure.
Figures = dict[str, float]
Run = Callable[[], Figures]


@dataclass(frozen=True, slots=True)
class Effort:
    """How long a run lasts, in ``seconds``, and how much there is of what does not go by time.

    ``joins``: connections to make. ``idle``: connections that only are there. ``exchanges``: requests. ``queued``:
    messages that wait in queues. ``kept``: messages in a journal. ``unread``: bytes that a slow reader leaves.
    ``rest``: seconds of doing nothing.
    """

    seconds: float = 1.0
    joins: int = 2_000
    idle: int = 10_000
    exchanges: int = 5_000
    queued: int = 100_000
    kept: int = 1_000_000
    unread: int = 200_000_000
    rest: float = 60.0


FULL = Effort()
#: Enough to see that everything works; the numbers mean little.
QUICK = Effort(seconds=0.05, joins=100, idle=200, exchanges=200, queued=2_000, kept=5_000, unread=2_000_000, rest=0.1)


class Work(Protocol):
    """A kind of work."""

    def on(self, peer: Peer, effort: Effort) -> AbstractContextManager[Run]:
        """Make ready on a started peer."""
