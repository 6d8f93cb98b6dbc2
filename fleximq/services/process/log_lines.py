"""The lines of the log, as text or JSON. Values from clients neither forge a line nor control a terminal.

A line of text is Twisted's, with control characters escaped. A line of JSON is one object: ``time`` (ISO 8601, UTC),
``level``, ``logger``, ``message``, ``traceback`` if any, and the fields of the event: numbers, texts, true, false and
null. Lines about connections have an ``event``: ``joined`` or ``left``, the latter with reason and traffic.

Long values are cut, and events at debug are not written.
"""

import math
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, cast

from twisted.application.service import IService, MultiService
from twisted.logger import (
    FileLogObserver,
    FilteringLogObserver,
    ILogObserver,
    LogEvent,
    LogLevel,
    LogLevelFilterPredicate,
    formatEvent,
    formatEventAsClassicLogText,
    formatTime,
)
from twisted.python.logfile import LogFile

from fleximq.config.option_values import LogFormat
from fleximq.values.log_limit import LogLimits
from fleximq.values.printable import jsonLine, printable

#: Fields that Twisted uses itself, and the fields written above.
_OWN = frozenset(
    {"time", "level", "logger", "message", "traceback", "format", "isError", "system", "failure", "why", "log_text"}
)


#: A longer value of an event is cut to this number of characters; it may come from a client.
LONGEST_VALUE = 500


def formatText(event: LogEvent) -> str | None:
    """Return an event as text: one line, and a traceback if any in further lines that begin with a tab."""
    event = _shortened(event)
    line = formatEventAsClassicLogText(
        {**event, "log_format": "{log_text}", "log_text": printable(formatEvent(event))}, formatTime
    )
    return None if line is None else printable(line, lines=True)


def formatLine(event: LogEvent) -> str:
    """Return an event as one line of JSON."""
    event = _shortened(event)
    level, failure = event.get("log_level"), event.get("log_failure")
    line: dict[str, Any] = {
        "time": datetime.fromtimestamp(event.get("log_time", 0.0), UTC).isoformat(timespec="milliseconds"),
        "level": getattr(level, "name", "info"),
        "logger": event.get("log_namespace", "-"),
        "message": formatEvent(event),
    }
    if failure is not None:
        line["traceback"] = failure.getTraceback()
    line |= {name: _value(value) for name, value in event.items() if not name.startswith("log_") and name not in _OWN}
    return jsonLine(line) + "\n"


def _shortened(event: LogEvent) -> LogEvent:
    return {
        name: f"{str(value)[:LONGEST_VALUE]}... ({len(str(value)) - LONGEST_VALUE} more characters)"
        if isinstance(value, str | Exception) and not name.startswith("log_") and len(str(value)) > LONGEST_VALUE
        else value
        for name, value in event.items()
    }


def _value(value: object) -> object:
    if isinstance(value, float) and math.isfinite(value):
        return round(value, 6)
    return value if value is None or isinstance(value, bool | int | str) else str(value)


def limited(observer: ILogObserver) -> ILogObserver:
    """Return an observer of at most ten lines a second from each module of Twisted, which strangers can cause."""
    limits = LogLimits()

    def observe(event: LogEvent) -> None:
        namespace = event.get("log_namespace", "")
        isTwisted = namespace.startswith("twisted.")
        more = limits[namespace].ending(event.get("log_time", 0.0)) if isTwisted else ""
        if more and "log_format" in event:
            event = {**event, "log_format": f"{event['log_format']}{more}"}
        if more is not None:
            observer(event)

    return cast(ILogObserver, observe)


@dataclass(eq=False, repr=False)
class LoggingService(MultiService):
    """Writes the log of its application.

    ``form``: returns an event as a line. ``options``: the options of ``twistd``, including the log file.
    """

    _form: Callable[[LogEvent], str | None]
    _options: Mapping[str, Any]
    _reactor: Any
    _onSignal: Callable[[int, Any], Any] = signal.signal

    def __post_init__(self) -> None:
        super().__init__()

    def setServiceParent(self, parent: Any) -> None:
        """Join an application before ``twistd`` asks it for its log observer."""
        super().setServiceParent(parent)
        if hasattr(parent, "setComponent"):
            written = limited(FileLogObserver(self._file(), self._form))
            parent.setComponent(ILogObserver, FilteringLogObserver(written, [LogLevelFilterPredicate(LogLevel.info)]))

    def _file(self) -> Any:
        """Return the file where ``twistd`` would log; SIGUSR1 rotates it, as there."""
        name = self._options.get("logfile")
        if name == "-" or (not name and self._options.get("nodaemon", False)):
            return sys.stdout
        file = LogFile.fromFullPath(name or "twistd.log")
        self._onSignal(signal.SIGUSR1, lambda *ignored: self._reactor.callFromThread(file.rotate))
        return file


def withLog(service: IService, form: LogFormat, options: Mapping[str, Any], reactor: Any) -> IService:
    """Return a service that contains this one and writes the log, unless ``--syslog`` of ``twistd`` does."""
    if options.get("syslog"):
        return service
    whole = LoggingService(formatText if form is LogFormat.TEXT else formatLine, options, reactor)
    service.setServiceParent(whole)
    return whole
