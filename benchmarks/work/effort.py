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
    """``seconds`` that a run should last, connections of a scene on joining, idle connections, requests in a run."""

    seconds: float = 1.0
    joins: int = 2_000
    idle: int = 10_000
    exchanges: int = 5_000
    queued: int = 100_000


FULL = Effort()
#: Enough to see that everything works; the numbers mean little.
QUICK = Effort(seconds=0.05, joins=100, idle=200, exchanges=200, queued=2_000)


class Work(Protocol):
    """A kind of work."""

    def on(self, peer: Peer, effort: Effort) -> AbstractContextManager[Run]:
        """Make ready on a started peer."""
