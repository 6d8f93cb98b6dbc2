"""How long to wait before the next attempt to connect."""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from fleximq.errors import SettingError


@dataclass(frozen=True, slots=True)
class Backoff:
    """The pauses between attempts to connect again: each longer than the last, none quite as planned.

    The first pause is up to ``first`` seconds, each further one up to ``factor`` times the last, none over ``most``.
    Of each, a random part of up to ``jitter`` (0 to 1) is left out, so that many clients do not all come at once.
    After so many ``attempts`` in a row the client gives up; None: never.

    :raises SettingError: for a value that makes no sense.
    """

    first: float = 0.1
    most: float = 30.0
    factor: float = 2.0
    jitter: float = 0.5
    attempts: int | None = None

    def __post_init__(self) -> None:
        if not (0 < self.first <= self.most and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise SettingError(f"{self} makes no sense: 0 < first <= most, factor >= 1, 0 <= jitter <= 1")
        if self.attempts is not None and self.attempts < 1:
            raise SettingError(f"attempts is {self.attempts}, but must be at least 1")

    def pauses(self, chance: Callable[[], float] = random.random) -> Iterator[float]:
        """Yield seconds to wait before each attempt.

        :param chance: returns a number from 0 to 1.
        """
        pause, made = self.first, 0
        while self.attempts is None or made < self.attempts:
            yield pause * (1 - self.jitter * chance())
            pause = min(pause * self.factor, self.most)
            made += 1
