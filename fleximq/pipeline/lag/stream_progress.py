"""How far a stream of a consumer group is: told to brokers when it has changed, and now and then when it has not."""

import time
from collections.abc import Callable, Mapping, Sequence

from fleximq.pipeline.broker_link import Place
from fleximq.pipeline.lag.reporter import Reporter

#: Seconds after which a stream says again where it is.
AGAIN = 10.0
#: Seconds that it waits for its word to be heard, since its process may end next; and after waiting in vain.
_HEARD, _IN_VAIN = 1.0, 30.0
#: After a stop that was not clean, a journal's numbering goes on at the next multiple of this.
_LEAP = 1_000_000_000


class StreamProgress:
    """Lives as long as the stream.

    :param report: makes what tells; ``now`` is a clock in seconds.
    """

    def __init__(
        self,
        group: str,
        places: Sequence[Place],
        report: Callable[[str, Sequence[Place]], Reporter] = Reporter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter = report(group, places)
        self._now = now
        self._told: tuple[dict[str, int], dict[str, int]] = {}, {}
        self._again = self._patientAgain = float("-inf")
        self._lost: dict[str, int] = {}

    def reached(self, offsets: Mapping[str, int]) -> None:
        """Say that everything before these offsets is done with; wait a moment until that is heard."""
        words = dict(offsets), dict(self._lost)
        if not offsets or (words == self._told and self._now() < self._again):
            return
        self._told, self._again = words, self._now() + AGAIN
        self._reporter.tell(offsets, words[1])
        if self._now() >= self._patientAgain and not self._reporter.settle(_HEARD):
            self._patientAgain = self._now() + _IN_VAIN

    def passedOver(self, journal: str, start: int, begin: int) -> None:
        """Count records between two offsets that were not there any more, at least so many.

        Where numbering has leapt between the two, what is behind the leap counts.
        """
        if begin > start:
            first = start if start // _LEAP == begin // _LEAP else begin // _LEAP * _LEAP
            self._lost[journal] = self._lost.get(journal, 0) + max(1, begin - first)

    def close(self) -> None:
        """Let the last word be heard."""
        self._reporter.close(_HEARD)
