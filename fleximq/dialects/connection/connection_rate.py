"""Keeps one connection to its rates: it is not read while it is over them, or what is over is refused.

Where it waits, what came is charged once for each read, by the numbers that the connection counts anyway; so a read is
what may come at once beyond the burst, and reads are made small where a burst is. Where it refuses, its session asks
run by run, through the functions below: they pass on what is admitted, and have the rest answered. What ends something
(ACK, UNSUB), answers somebody else or keeps the connection alive is charged, but never refused.
"""

import sys
from collections.abc import Callable, Iterable, Iterator

from twisted.internet.interfaces import IDelayedCall, IReactorTime

from fleximq.broker.traffic import Traffic
from fleximq.dialects.connection.read_pauses import ReadPauses
from fleximq.errors import TooManyRequests
from fleximq.security.rates.client_rates import Meter, RateRules
from fleximq.wire.blipmq_frame import BlipRun, FrameType
from fleximq.wire.fleximq_frame import MessageType
from fleximq.wire.fleximq_scanner import Span, singleFrames

#: What is counted each time that a connection is not read because of its rates.
PAUSED = "paused: over the rate"
#: Debts that are made good in so many seconds are not worth a pause.
MIN_PAUSE = 0.001
#: The longest pause before it is looked again, in seconds.
MAX_PAUSE = 3600.0
#: A message has at least about so many bytes, where reads are cut to a number of messages.
MIN_MESSAGE_BYTES = 64
#: No read is made smaller than this.
MIN_READ_BYTES = 512

_FLEXI = frozenset({MessageType.PUB, MessageType.REQ, MessageType.NOTIF, MessageType.BCAST, MessageType.SUB})
_BLIP = frozenset({FrameType.PUBLISH, FrameType.SUBSCRIBE, FrameType.POLL})
_MINI = (b"PRODUCE:", b"CONSUME:")
_IDENTITY = (b"PUBLISH:", b"SUBSCRIBE:")


def overRate() -> TooManyRequests:
    """Return the error for what is over a rate."""
    return TooManyRequests("too much at once: the rate is limited here")


class ConnectionRate:
    """The rates of one connection.

    :param meter: what it may send.
    :param traffic: what came over it.
    :param clock: resumes it.
    :param counted: called with :data:`PAUSED` and 1 when it has to wait.
    """

    __slots__ = ("_clock", "_counted", "_messages", "_reading", "_size", "_timer", "_traffic", "meter")

    def __init__(
        self, meter: Meter, traffic: Traffic, clock: IReactorTime, counted: Callable[[str, int], object]
    ) -> None:
        self.meter = meter
        self._traffic = traffic
        self._clock = clock
        self._counted = counted
        self._messages = self._size = 0
        self._timer: IDelayedCall | None = None
        self._reading: ReadPauses | None = None

    @property
    def refuses(self) -> bool:
        """Whether what is over the rates is refused."""
        return self.meter.refuses

    def charge(self, reading: ReadPauses) -> None:
        """Charge what came since the last time, and stop reading if that was too much."""
        messages, size = self._traffic.messagesIn, self._traffic.bytesIn
        if not self.meter.refuses:
            self.meter.spend(messages - self._messages, size - self._size)
        self._messages, self._size = messages, size
        if self._timer is None:
            wait = self.meter.wait()
            if wait > MIN_PAUSE and not self.meter.refuses:
                self._counted(PAUSED, 1)
                self._reading = reading
                reading.pause(self)
                self._timer = self._clock.callLater(min(wait, MAX_PAUSE), self._continue)

    def subscribing(self) -> None:
        """Charge that a subscription is asked for.

        :raises TooManyRequests: it is over the rate, and refused.
        """
        if not self.meter.refuses:
            self.meter.spendSubscription()
        elif not self.meter.admitsSubscription():
            raise overRate()

    def close(self) -> None:
        """The connection is gone."""
        self.meter.close()
        self._reading = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _continue(self) -> None:
        """Read again, unless others of the same principal have run up more debts meanwhile."""
        self._timer = None
        wait = self.meter.wait()
        if wait > MIN_PAUSE and not self.meter.refuses:
            self._timer = self._clock.callLater(min(wait, MAX_PAUSE), self._continue)
        elif self._reading is not None:
            self._reading.resume(self)


def maxReadBytes(rules: RateRules) -> int:
    """Return how many bytes may be read at once, so that no read brings much more than the bursts that are allowed."""
    sizes = [allowance.bytes.burst for allowance in rules[:2] if allowance.bytes]
    sizes += [allowance.messages.burst * MIN_MESSAGE_BYTES for allowance in rules[:2] if allowance.messages]
    return int(max(MIN_READ_BYTES, min(sizes))) if sizes else sys.maxsize


def admittedSpans(meter: Meter, spans: Iterable[Span], refuse: Callable[[bytes, int], None]) -> Iterator[Span]:
    """Pass on the runs of a FlexiMQ connection, as far as they are within its rates.

    :param refuse: answers so many messages with this envelope.
    """
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
    """Pass on the runs of a BlipMQ connection, as far as they are within its rates.

    :param refuse: answers the frames with these correlation ids.
    """
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


def admittedLines(meter: Meter, lines: Iterable[bytes], refuse: Callable[[], None]) -> Iterator[bytes]:
    """Pass on the lines of a MiniMQ connection that are within its rates.

    :param refuse: answers one.
    """
    return _admittedOf(_MINI, meter, lines, refuse)


def admittedTexts(meter: Meter, texts: Iterable[bytes], refuse: Callable[[], None]) -> Iterator[bytes]:
    """Pass on the texts of an Identity connection that are within its rates.

    :param refuse: answers one.
    """
    return _admittedOf(_IDENTITY, meter, texts, refuse)


def _admittedOf(
    beginnings: tuple[bytes, ...], meter: Meter, messages: Iterable[bytes], refuse: Callable[[], None]
) -> Iterator[bytes]:
    for message in messages:
        if not message.startswith(beginnings):
            meter.spend(1, len(message))
        elif not meter.admits(1, len(message)):
            refuse()
            continue
        yield message
