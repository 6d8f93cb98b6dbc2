"""The lines of the log, as text or JSON. Values from clients neither forge a line nor control a terminal.

A line of text is Twisted's, with control characters escaped. A line of JSON is one object: ``time`` (ISO 8601, UTC),
``level``, ``logger``, ``message``, ``traceback`` if any, and the fields of the event: numbers, texts, true, false and
null. Lines about connections have an ``event``: ``joined`` or ``left``, the latter with reason and traffic.

Long values are cut, and events at debug are not written.
"""

import math
import os
import signal
import sys
import syslog
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from twisted.application.service import IService, MultiService
from twisted.logger import (
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    formatEventAsClassicLogText,
    formatTime,
)

from fleximq.config.option_values import LogFormat
from fleximq.errors import systemReason
from fleximq.services.process.log_writer import Descriptor, LogPath, LogTarget, LogWriter, SystemLog
from fleximq.values.log_limit import LogLimits
from fleximq.values.printable import jsonLine, printable

#: Fields that Twisted uses itself, and the fields written above.
_OWN = frozenset(
    {"time", "level", "logger", "message", "traceback", "format", "isError", "system", "failure", "why", "log_text"}
)


#: Priorities of syslog; info for all others.
_PRIORITIES = {LogLevel.warn: syslog.LOG_WARNING, LogLevel.error: syslog.LOG_ERR, LogLevel.critical: syslog.LOG_CRIT}

#: A longer value of an event is cut to this number of characters; it may come from a client.
LONGEST_VALUE = 500
#: The middle of a longer line or traceback is left out, in characters.
LONGEST_LINE = 16_000


def formatText(event: LogEvent, time: Callable[[float | None], str] = formatTime) -> str | None:
    """Return an event as text: one line, and a traceback if any in further lines that begin with a tab."""
    text = {"log_format": "{log_text}", "log_text": textOf(event)}
    line = formatEventAsClassicLogText({**_shortened(event), **text}, time)
    return None if line is None else printable(_cut(line), lines=True)


def textOf(event: LogEvent) -> str:
    """Return the text of an event on one line, without a traceback."""
    return printable(formatEvent(_shortened(event)))


def formatLine(event: LogEvent) -> str:
    """Return an event as one line of JSON."""
    event = _shortened(event)
    level, failure = event.get("log_level"), event.get("log_failure")
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(event.get("log_time", 0.0), UTC).isoformat(timespec="milliseconds"),
        "level": getattr(level, "name", "info"),
        "logger": event.get("log_namespace", "-"),
        "message": _cut(formatEvent(event)),
    }
    if failure is not None:
        line["traceback"] = _cut(failure.getTraceback())
    line |= {name: _value(value) for name, value in event.items() if not name.startswith("log_") and name not in _OWN}
    return jsonLine(line) + "\n"


def _shortened(event: LogEvent) -> LogEvent:
    return {
        name: f"{str(value)[:LONGEST_VALUE]}... ({len(str(value)) - LONGEST_VALUE} more characters)"
        if isinstance(value, str | Exception) and not _isOwn(name) and len(str(value)) > LONGEST_VALUE
        else value
        for name, value in event.items()
    }


def _cut(text: str) -> str:
    if len(text) <= LONGEST_LINE:
        return text
    end = LONGEST_LINE // 2
    return f"{text[:end]}... ({len(text) - 2 * end} characters left out) ...{text[-end:]}"


def _isOwn(name: str) -> bool:
    """Return whether a field has words of the broker itself, which name the cause at their end."""
    return name == "sentence" or name.startswith("log_")


def _value(value: object) -> object:
    if isinstance(value, float) and math.isfinite(value):
        return round(value, 6)
    return value if value is None or isinstance(value, bool | int | str) else str(value)[:LONGEST_LINE]


def limited(observer: ILogObserver) -> ILogObserver:
    """Return an observer of at most ten lines a second from each module of Twisted, which strangers can cause.

    Tracebacks are limited in the same way, of any module.
    """
    limits = LogLimits()

    def observe(event: LogEvent) -> None:
        namespace = event.get("log_namespace", "")
        isLimited = namespace.startswith("twisted.") or "log_failure" in event
        more = limits[namespace].ending(event.get("log_time", 0.0)) if isLimited else ""
        if more and "log_format" in event:
            event = {**event, "log_format": f"{event['log_format']}{more}"}
        if more is not None:
            observer(event)

    return cast(ILogObserver, observe)


@dataclass(eq=False, repr=False)
class LoggingService(MultiService):
    """Writes the log of its application.

    ``form``: returns an event as a line. ``options``: the options of ``twistd``, including the log file.
    ``reopenOthers``: reopens the other files that grow, on SIGUSR1.
    """

    _form: Callable[[LogEvent], str | None]
    _options: Mapping[str, Any]
    _reactor: Any
    _onSignal: Callable[[int, Any], Any] = signal.signal
    reopenOthers: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        super().__init__()
        self.writer: LogWriter | None = None

    def setServiceParent(self, parent: Any) -> None:
        """Join an application before ``twistd`` asks it for its log observer.

        :raises SystemExit: with a sentence, if the log file cannot be opened.
        """
        super().setServiceParent(parent)
        if hasattr(parent, "setComponent"):
            self.writer = LogWriter(self._target(), self._notice)
            self._onSignal(signal.SIGUSR1, lambda *ignored: self._reactor.callFromThread(self._reopen))
            info = [LogLevelFilterPredicate(LogLevel.info)]
            parent.setComponent(ILogObserver, FilteringLogObserver(limited(cast(ILogObserver, self._observe)), info))

    def privilegedStartService(self) -> None:
        """Start to write: ``twistd`` has forked, if it does."""
        if self.writer is not None:
            self.writer.start()
        super().privilegedStartService()

    def _observe(self, event: LogEvent) -> None:
        line = self._form(event)
        if line and self.writer is not None:
            self.writer.write(line, _PRIORITIES.get(event.get("log_level"), syslog.LOG_INFO))

    def _notice(self, sentence: str) -> str:
        fields = {"log_level": LogLevel.warn, "log_namespace": __name__, "log_time": time.time()}
        return self._form({**fields, "log_format": "{sentence}", "sentence": sentence}) or ""

    def _reopen(self) -> None:
        self.reopenOthers()
        if self.writer is not None:
            self.writer.reopen()

    def _target(self) -> LogTarget:
        """Return where ``twistd`` would log."""
        name = self._options.get("logfile")
        if self._options.get("syslog"):
            return SystemLog(self._options.get("prefix") or "twisted")
        if name == "-" or (not name and self._options.get("nodaemon", False)):
            return _standardOutput()
        name = name or "twistd.log"
        try:
            return LogPath(name)
        except OSError as error:
            raise SystemExit(f"fleximq: the log file {name} cannot be opened: {systemReason(error)}") from None


def _standardOutput() -> Descriptor:
    try:
        return Descriptor(sys.stdout.fileno())
    except (AttributeError, OSError, ValueError):  # it is closed
        return Descriptor(os.open(os.devnull, os.O_WRONLY))


def withLog(
    service: IService,
    form: LogFormat,
    options: Mapping[str, Any],
    reactor: Any,
    reopenOthers: Callable[[], object] = lambda: None,
    onSignal: Callable[[int, Any], Any] = signal.signal,
) -> "LoggingService":
    """Return a service that contains this one and writes the log."""
    formatted = formatText if form is LogFormat.TEXT else formatLine
    if options.get("syslog") and form is LogFormat.TEXT:
        formatted = partial(formatText, time=lambda seconds: "")  # syslog adds its own
    whole = LoggingService(formatted, options, reactor, onSignal, reopenOthers)
    service.setServiceParent(whole)
    return whole
