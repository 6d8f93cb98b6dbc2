"""The base of the campaign's faults: each is a method; what it stopped and cut is healed after it."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tests.cluster.nats.hosts import Hosts

#: The names of all faults.
KINDS: list[str] = []

M = TypeVar("M", bound=Callable[..., object])


def fault(method: M) -> M:
    """Add a method to :data:`KINDS`."""
    KINDS.append(method.__name__)
    return method


class FaultyHosts(Hosts):
    """``broken`` has the promises that were seen broken meanwhile, ``notes`` what else is reported."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self.broken: list[str] = []
        self.notes: Counter[str] = Counter()
