"""Reports the progress of a stream with a consumer group: when it has changed, and periodically."""

import time
from collections.abc import Callable, Mapping, Sequence

from fleximq.pipeline.broker_link import Place
from fleximq.pipeline.lag.reporter import Reporter

#: Seconds after which an unchanged report is repeated.
REPEAT_AFTER = 10.0
#: Seconds to wait for delivery of a report, since the process may end next; and until the next wait after a failed one.
_DELIVERY_TIMEOUT, _WAIT_PAUSE = 1.0, 30.0
#: After an unclean stop, a journal continues its offsets at the next multiple of this.
_LEAP = 1_000_000_000


class StreamProgress:
    """The progress of one stream; ``report`` makes the reporter, ``now`` is a clock in seconds."""

    def __init__(
        self,
        group: str,
        places: Sequence[Place],
        report: Callable[[str, Sequence[Place]], Reporter] = Reporter,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reporter = report(group, places)
        self._now = now
        self._reported: tuple[dict[str, int], dict[str, int]] = {}, {}
        self._nextReport = self._nextWait = float("-inf")
        self._lost: dict[str, int] = {}

    def report(self, offsets: Mapping[str, int]) -> None:
        """Report that everything before these offsets is processed; wait a moment for its delivery."""
        words = dict(offsets), dict(self._lost)
        if not offsets or (words == self._reported and self._now() < self._nextReport):
            return
        self._reported, self._nextReport = words, self._now() + REPEAT_AFTER
        self._reporter.report(offsets, words[1])
        if self._now() >= self._nextWait and not self._reporter.flush(_DELIVERY_TIMEOUT):
            self._nextWait = self._now() + _WAIT_PAUSE

    def countLost(self, journal: str, start: int, begin: int) -> None:
        """Count the removed records between two offsets, as a lower bound: if the offsets continue at a multiple of a
        billion after an unclean stop, only records after it count.
        """
        if begin > start:
            first = start if start // _LEAP == begin // _LEAP else begin // _LEAP * _LEAP
            self._lost[journal] = self._lost.get(journal, 0) + max(1, begin - first)

    def close(self) -> None:
        """Deliver the last report."""
        self._reporter.close(_DELIVERY_TIMEOUT)
