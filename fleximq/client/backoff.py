"""Delays before attempts: to reconnect, or to run a job again."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

from fleximq.errors import SettingError


@dataclass(frozen=True, slots=True)
class Backoff:
    """Growing delays between attempts, with a random part.

    The first delay is up to ``first`` seconds; each further one is up to ``factor`` times the previous, limited to
    ``most`` seconds. A random part of up to ``jitter`` (0 to 1) is subtracted, so that clients do not reconnect all at
    once. The client gives up after ``attempts`` failed attempts in a row; None: never.

    :raises SettingError: a value is out of range.
    """

    first: float = 0.1
    most: float = 30.0
    factor: float = 2.0
    jitter: float = 0.5
    attempts: int | None = None

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.most and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise SettingError(f"{self} is invalid: it must be 0 < first <= most, factor >= 1, 0 <= jitter <= 1")
        if self.attempts is not None and self.attempts < 1:
            raise SettingError(f"attempts is {self.attempts}, but must be at least 1")

    def pauses(self, chance: Callable[[], float] = random.random) -> Iterator[float]:
        """Yield the delay in seconds before each attempt; ``chance`` returns a random number from 0 to 1."""
        pause, made = self.first, 0
        while self.attempts is None or made < self.attempts:
            yield pause * (1 - self.jitter * chance())
            pause = min(pause * self.factor, self.most)
            made += 1

    def pause(self, failures: int, chance: Callable[[], float] = random.random) -> float | None:
        """Return the delay in seconds after so many failed attempts, at least 1; None: there have been ``attempts``."""
        if self.attempts is not None and failures >= self.attempts:
            return None
        return next(islice(self.pauses(chance), failures - 1, None))
