"""Applies rate limits to one connection: pauses reading, or refuses messages over the limit.

When pausing, each read is charged once; it can exceed the burst, so reads are made small where bursts are small.
Messages that end a subscription (ACK, UNSUB), answer another client or serve keep-alive are charged, not refused.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.broker.traffic import Traffic
from fleximq.dialects.connection.read_pauses import ReadPauses
from fleximq.errors import TooManyRequests
from fleximq.security.rates.client_rates import Meter, RateRules
from fleximq.wire.blipmq_frame import BlipRun, FrameType
from fleximq.wire.fleximq_header import MessageType
from fleximq.wire.fleximq_scanner import Span, singleFrames

#: Counter event: reading was paused because the connection is over its rate.
PAUSED = "paused: over the rate"
#: Shorter pauses, in seconds, are skipped.
MIN_PAUSE = 0.001
#: The longest pause before the meter is checked again, in seconds.
MAX_PAUSE = 3600.0
#: Assumed minimum size of a message, for turning a message burst into a read size.
MIN_MESSAGE_BYTES = 64
#: The smallest read size.
MIN_READ_BYTES = 512

_FLEXI = frozenset({MessageType.PUB, MessageType.REQ, MessageType.NOTIF, MessageType.BCAST, MessageType.SUB})
_BLIP = frozenset({FrameType.PUBLISH, FrameType.SUBSCRIBE, FrameType.POLL})


def overRate() -> TooManyRequests:
    """Return the error for a message over its rate limit."""
    return TooManyRequests("too much at once: the rate is limited here")


@dataclass(slots=True, eq=False)
class ConnectionRate:
    """The rate limits of one connection; ``counted`` is called with :data:`PAUSED` and 1 at each pause."""

    #: Why a connection is not read while it is over its limits.
    pauseWords: ClassVar[str] = "it exceeds its rate"
    meter: Meter
    traffic: Traffic
    clock: IReactorTime
    counted: Callable[[str, int], object]
    _messages: int = field(default=0, init=False)
    _size: int = field(default=0, init=False)
    _timer: IDelayedCall | None = field(default=None, init=False)
    _reading: ReadPauses | None = field(default=None, init=False)

    @property
    def refuses(self) -> bool:
        """Whether messages over the limit are refused instead of delayed."""
        return self.meter.refuses

    def charge(self, reading: ReadPauses, gained: int = 0) -> None:
        """Charge the traffic since the last call, and pause reading if it is over the limit.

        :param gained: bytes that the connection's input gained by inflation so far.
        """
        messages, size = self.traffic.messagesIn, self.traffic.bytesIn + gained
        if not self.meter.refuses:
            self.meter.spend(messages - self._messages, size - self._size)
        self._messages, self._size = messages, size
        if self._timer is None:
            wait = self.meter.wait()
            if wait > MIN_PAUSE and not self.meter.refuses:
                self.counted(PAUSED, 1)
                self._reading = reading
                reading.pause(self)
                self._timer = self.clock.callLater(min(wait, MAX_PAUSE), self._continue)

    def subscribing(self) -> None:
        """Charge one subscription request; raises TooManyRequests if this connection refuses it as over the limit."""
        if not self.meter.refuses:
            self.meter.spendSubscription()
        elif not self.meter.admitsSubscription():
            raise overRate()

    def close(self) -> None:
        """Release the meter and stop the timer; the connection is closed."""
        self.meter.close()
        self._reading = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _continue(self) -> None:
        """Resume reading, unless other connections of the same principal have used up the allowance meanwhile."""
        self._timer = None
        wait = self.meter.wait()
        if wait > MIN_PAUSE and not self.meter.refuses:
            self._timer = self.clock.callLater(min(wait, MAX_PAUSE), self._continue)
        elif self._reading is not None:
            self._reading.resume(self)


@lru_cache(maxsize=8)
def maxReadBytes(rules: RateRules, most: int) -> int:
    """Return the maximum read size, at most ``most``, so that one read holds hardly more than the allowed bursts."""
    sizes = [allowance.bytes.burst for allowance in rules[:2] if allowance.bytes]
    sizes += [allowance.messages.burst * MIN_MESSAGE_BYTES for allowance in rules[:2] if allowance.messages]
    return min(most, int(max(MIN_READ_BYTES, min(sizes)))) if sizes else most


def admittedSpans(meter: Meter, spans: Iterable[Span], refuse: Callable[[bytes, int], None]) -> Iterator[Span]:
    """Yield the admitted part of FlexiMQ runs; ``refuse`` gets the envelope and number of refused messages."""
    for span in spans:
        envelope, source, start, end, count = span
        if envelope[1] not in _FLEXI:
            meter.spend(count, end - start)
            yield span
            continue
        admitted = meter.admits(count, end - start)
        if admitted == count:
            yield span
            continue
        if admitted:
            first = singleFrames(source[start:end], len(envelope))[:admitted]
            yield envelope, source, start, start + sum(map(len, first)), admitted
        refuse(envelope, count - admitted)


def admittedRuns(meter: Meter, runs: Iterable[BlipRun], refuse: Callable[[list[int]], None]) -> Iterator[BlipRun]:
    """Yield the admitted part of BlipMQ runs; ``refuse`` gets the correlation ids of refused frames."""
    for run in runs:
        kind, head, correlations, messages = run
        size = len(correlations) * len(head) + sum(map(len, messages))
        if kind not in _BLIP:
            meter.spend(len(correlations), size)
            yield run
            continue
        admitted = meter.admits(len(correlations), size)
        if admitted == len(correlations):
            yield run
            continue
        if admitted:
            yield kind, head, correlations[:admitted], messages[:admitted]
        refuse(correlations[admitted:])


def admittedMessages(
    limited: tuple[bytes, ...], meter: Meter, messages: Iterable[bytes], refuse: Callable[[], None]
) -> Iterator[bytes]:
    """Yield the admitted messages; call ``refuse`` for each other one that begins with one of ``limited``."""
    for message in messages:
        if not message.startswith(limited):
            meter.spend(1, len(message))
        elif not meter.admits(1, len(message)):
            refuse()
            continue
        yield message
