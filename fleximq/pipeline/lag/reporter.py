"""Consumer groups: reports how far the readers of journals are, and reads their backlogs (docs/reference/pipeline.rst).
A stream with the option ``consumerGroup`` uses :class:`StreamProgress`, other readers :class:`Reporter`.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from enum import Enum
from threading import Condition, Thread
from typing import Any, NamedTuple

from fleximq.pipeline.broker_link import BrokerAddress, BrokerLink
from fleximq.pipeline.errors import OptionRefused, PipelineError
from fleximq.values.state_records import MAX_GROUP_NAME_BYTES
from fleximq.values.transitions import Transitions

_log = logging.getLogger("fleximq.pipeline")
#: Seconds of one connection attempt, and until the next attempt after a failure.
_TIMEOUT, _PAUSE = 1.0, 30.0


class Group(NamedTuple):
    """The progress of a group in a journal that ends before the offset ``end``: all before ``next`` is processed. The
    backlog has about so many ``records`` and ``bytes``, and its oldest record has waited so many ``seconds`` (None:
    unreadable). ``lost`` records were missing for the group. ``told`` is the time of the report, in ms since 1970.
    """

    name: str
    journal: str
    next: int
    end: int
    records: int
    bytes: int
    seconds: float | None
    lost: int
    told: int


def groups(place: BrokerAddress) -> list[Group]:
    """Return all groups that a broker knows, by name; raises PipelineError if it is away or has no journal."""
    found: list[Group] = []
    after: str | None = ""
    with BrokerLink(place) as link:
        while after is not None:
            answer = link.ask("/pipeline/groups", {"after": after, "limit": 1000})
            for row in answer["groups"]:
                same = {name: row[name] for name in ("next", "records", "bytes", "seconds", "lost")}
                found.append(Group(row["group"], answer["journal"], end=answer["end"], told=row["time"], **same))
            after = answer["next"]
    return found


def forget(place: BrokerAddress, name: str) -> bool:
    """Remove a group from a broker, until its next report; False if the name is unknown. Raises as :func:`groups`."""
    with BrokerLink(place) as link:
        return bool(link.ask("/pipeline/forget", {"group": name})["forgotten"])


def groupName(written: str) -> str:
    """Return the checked name of a group; raises OptionRefused if it is empty or too long."""
    if not 0 < len(written.encode()) <= MAX_GROUP_NAME_BYTES:
        raise OptionRefused(f"the name of a consumer group must have 1 to {MAX_GROUP_NAME_BYTES} bytes")
    return written


class Reporter:
    """Reports one group's progress to brokers; a newer report replaces one that was not sent yet. No method raises
    because of a broker, and only :meth:`flush` and :meth:`close` wait for one.
    """

    def __init__(self, group: str, places: Sequence[BrokerAddress]) -> None:
        self._group = group
        self._reporters = [_BrokerReporter(place) for place in places]

    def report(
        self, offsets: Mapping[str, int], lost: Mapping[str, int] | None = None, dead: Mapping[str, int] | None = None
    ) -> None:
        """Report that everything before these offsets, by the journal's id, is processed. ``lost`` and ``dead`` are the
        numbers of missing records and of dead letters of each journal; None: unchanged.
        """
        now = time.time_ns() // 1_000_000
        words = [
            {"group": self._group, "journal": journal, "next": nextOffset, "time": now}
            | ({} if lost is None else {"lost": lost.get(journal, 0)})
            | ({} if dead is None else {"dead": dead.get(journal, 0)})
            for journal, nextOffset in offsets.items()
        ]
        for reporter in self._reporters:
            reporter.report(words)

    def flush(self, seconds: float) -> bool:
        """Wait until all reports are sent; False if a broker is unreachable, or the time is over."""
        until = time.monotonic() + seconds
        flushed = [reporter.flush(max(0.0, until - time.monotonic())) for reporter in self._reporters]
        return all(flushed)

    def close(self, seconds: float = 5.0) -> None:
        """Send the remaining reports within this time, and stop."""
        for reporter in self._reporters:
            reporter.on(SendEvent.HURRY)
        self.flush(seconds)
        for reporter in self._reporters:
            reporter.on(SendEvent.CLOSE)


class SendState(Enum):
    """The state of the reports to one broker; RETRYING from a failed attempt until one succeeds."""

    IDLE = "idle"
    SENDING = "sending"
    RETRYING = "retrying"
    CLOSED = "closed"


class SendEvent(Enum):
    """An event of the reports to one broker; HURRY ends the pause before the next attempt."""

    PROGRESS = "progress"
    SENT = "sent"
    FAILED = "failed"
    HURRY = "hurry"
    CLOSE = "close"


TRANSITIONS = Transitions(
    {
        (SendState.IDLE, SendEvent.PROGRESS): SendState.SENDING,
        (SendState.IDLE, SendEvent.HURRY): SendState.IDLE,
        (SendState.SENDING, SendEvent.PROGRESS): SendState.SENDING,
        (SendState.SENDING, SendEvent.SENT): SendState.IDLE,
        (SendState.SENDING, SendEvent.FAILED): SendState.RETRYING,
        (SendState.SENDING, SendEvent.HURRY): SendState.SENDING,
        (SendState.RETRYING, SendEvent.PROGRESS): SendState.RETRYING,
        (SendState.RETRYING, SendEvent.SENT): SendState.IDLE,
        (SendState.RETRYING, SendEvent.FAILED): SendState.RETRYING,
        (SendState.RETRYING, SendEvent.HURRY): SendState.SENDING,
        **{(state, SendEvent.CLOSE): SendState.CLOSED for state in SendState},
        **{(SendState.CLOSED, event): SendState.CLOSED for event in SendEvent},
    }
)


class _BrokerReporter:
    """Reports to one broker, on a thread of its own that starts with the first report."""

    def __init__(self, place: BrokerAddress) -> None:
        self._place = replace(place, timeout=_TIMEOUT)
        self._changed = Condition()
        self._pending: list[dict[str, Any]] | None = None
        self._state = SendState.IDLE
        self._warned = False
        self._thread: Thread | None = None

    def report(self, words: list[dict[str, Any]]) -> None:
        with self._changed:
            self._pending = words
            self.on(SendEvent.PROGRESS)
            if self._thread is None and self._state is SendState.SENDING:
                self._thread = Thread(target=self._work, name="fleximq consumer group", daemon=True)
                self._thread.start()

    def flush(self, seconds: float) -> bool:
        with self._changed:
            self._changed.wait_for(lambda: self._state is not SendState.SENDING, seconds)
            return self._state is SendState.IDLE

    def on(self, event: SendEvent) -> None:
        with self._changed:
            self._state = TRANSITIONS[self._state, event]
            self._changed.notify_all()

    def _work(self) -> None:
        with BrokerLink(self._place) as link:
            while words := self._next():
                isSent = self._send(link, words)
                with self._changed:
                    self._pending = self._pending or (None if isSent else words)
                    self.on(SendEvent.SENT if isSent else SendEvent.FAILED)
                    if isSent and self._pending:
                        self.on(SendEvent.PROGRESS)
                    self._changed.wait_for(lambda: self._state is not SendState.RETRYING, _PAUSE)

    def _next(self) -> list[dict[str, Any]] | None:
        """Wait for a report and return it, None once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending or self._state is SendState.CLOSED)
            words, self._pending = self._pending, None
            return None if self._state is SendState.CLOSED else words

    def _send(self, link: BrokerLink, words: list[dict[str, Any]]) -> bool:
        group, isSent, why = words[0]["group"], True, ""
        try:
            answer = link.ask("/pipeline/lag", {"groups": words})
            if not answer["taken"]:
                why = f"does not read journal {answer['journal']} at {self._place.url}"
        except PipelineError as error:
            isSent, why = False, f"could not be reported: {error}"
        if why and not self._warned:
            _log.warning("consumer group %s %s", group, why)
        self._warned = bool(why)
        return isSent


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
        places: Sequence[BrokerAddress],
        report: Callable[[str, Sequence[BrokerAddress]], Reporter] = Reporter,
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
        """Count the removed records between two offsets; if an unclean stop was between, only those after it."""
        if begin > start:
            first = start if start // _LEAP == begin // _LEAP else begin // _LEAP * _LEAP
            self._lost[journal] = self._lost.get(journal, 0) + max(1, begin - first)

    def close(self) -> None:
        """Deliver the last report."""
        self._reporter.close(_DELIVERY_TIMEOUT)
