"""The log as lines of JSON, for programs that read it.

Each line is one object: ``time`` (ISO 8601, UTC), ``level``, ``logger``, ``message``, ``traceback`` where there is one,
and whatever fields the event has; those are numbers, texts, true, false and null. Lines about what happens to
connections have an ``event``, by which they are found: ``joined`` and ``left``, the latter with the reason and how much
went over it.
"""

import json
import signal
import sys
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from twisted.application.service import IService, MultiService
from twisted.logger import FileLogObserver, ILogObserver, LogEvent, formatEvent
from twisted.python.logfile import LogFile

#: What Twisted puts into events for itself, and what stands in our own fields.
_OWN = frozenset(
    {"time", "level", "logger", "message", "traceback", "format", "isError", "system", "failure", "why", "log_text"}
)


def formatLine(event: LogEvent) -> str:
    """Return an event as one line of JSON."""
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
    return json.dumps(line, ensure_ascii=False) + "\n"


def _value(value: object) -> object:
    return value if value is None or isinstance(value, bool | int | str) else _rounded(value)


def _rounded(value: object) -> object:
    if isinstance(value, float) and value - value == 0:
        return round(value, 6)
    return str(value)


class LoggingService(MultiService):
    """Has the log written as lines of JSON by the application that it becomes a part of.

    :param options: those of ``twistd`` itself, which say where the log goes.
    :param onSignal: installs what is called when this process gets a signal (:func:`signal.signal`).
    """

    def __init__(
        self,
        options: Mapping[str, Any],
        reactor: Any,
        onSignal: Callable[[int, Any], Any] = signal.signal,
    ) -> None:
        super().__init__()
        self._options = options
        self._reactor = reactor
        self._onSignal = onSignal

    def setServiceParent(self, parent: Any) -> None:
        """Become part of an application, before ``twistd`` asks it for its log."""
        super().setServiceParent(parent)
        if hasattr(parent, "setComponent"):
            parent.setComponent(ILogObserver, FileLogObserver(self._file(), formatLine))

    def _file(self) -> Any:
        """Return where ``twistd`` would write its own log; SIGUSR1 begins a new file, as there."""
        name = self._options.get("logfile")
        if name == "-" or (not name and self._options.get("nodaemon", False)):
            return sys.stdout
        file = LogFile.fromFullPath(name or "twistd.log")
        self._onSignal(signal.SIGUSR1, lambda *ignored: self._reactor.callFromThread(file.rotate))
        return file


def inJson(service: IService, options: Mapping[str, Any], reactor: Any) -> IService:
    """Return a service that holds this one, and has the log written as lines of JSON.

    ``--syslog`` and ``--logger`` of ``twistd`` have their own form, whatever this says.
    """
    if options.get("syslog"):
        return service
    whole = LoggingService(options, reactor)
    service.setServiceParent(whole)
    return whole
