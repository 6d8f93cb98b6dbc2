"""``/api/warnings``: the warnings and errors that the broker has logged in the last hour."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from twisted.logger import ILogObserver, LogEvent, LogLevel
from zope.interface import implementer

from fleximq.broker.paths.arguments import Listing, page
from fleximq.rights import Action
from fleximq.values.printable import shortened
from fleximq.web.api.answers import PAGED_BY_NUMBER
from fleximq.web.request import HttpReply, Page, PageRequest, jsonReply

#: The maximum number of warnings, and of characters of each: at most 2.5 MB, mostly a tenth of that.
MOST, _CHARACTERS = 500, 1000
#: Seconds after which a warning is forgotten.
LASTING = 3600.0
_LEVELS = frozenset({LogLevel.warn, LogLevel.error, LogLevel.critical})


class Warned(NamedTuple):
    """One warning: its number, when it was logged (clock and milliseconds since 1970), and its words."""

    number: int
    at: float
    time: int
    level: str
    source: str
    text: str


@implementer(ILogObserver)
@dataclass(eq=False, repr=False)
class RecentWarnings:
    """Observes the log. ``seconds``: a monotonic clock; ``textOf``: returns the text of an event as the log has it."""

    _seconds: Callable[[], float]
    _textOf: Callable[[LogEvent], str]
    _warnings: deque[Warned] = field(default_factory=lambda: deque(maxlen=MOST))
    _numbers: "count[int]" = field(default_factory=lambda: count(1))

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Remember an event that is a warning or worse."""
        level = event.get("log_level")
        if level not in _LEVELS:
            return
        text = shortened(self._textOf(dict(event)), _CHARACTERS)
        time, source = round(event.get("log_time", 0.0) * 1000), str(event.get("log_namespace", ""))
        name = getattr(level, "name", "warn")
        self._warnings.append(Warned(next(self._numbers), self._seconds(), time, name, source, text))

    async def answer(self, request: PageRequest) -> HttpReply:
        """Return a page of the warnings, oldest first."""
        some, since = page(request.arguments, int, 0), self._seconds() - LASTING
        rows = [each for each in self._warnings if each.at >= since]
        return jsonReply(Listing("warnings", rows, attrgetter("number"), _row, *some).atOnce())


def _row(warned: Warned) -> dict[str, Any]:
    row = warned._asdict()
    del row["at"]
    return row


def warningsPage(warnings: RecentWarnings) -> Page:
    """Return the page."""
    words = "What the broker has logged as warnings and errors in the last hour, the last 500 of them, oldest first."
    return Page(
        partial(RecentWarnings.answer, warnings), Action.ADMIN, words=words, arguments=PAGED_BY_NUMBER, everywhere=True
    )
