"""``/api/health``: the checks of ``/readyz``, and what else an operator should look at, in words."""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from fleximq.broker.broker import Broker
from fleximq.web.api.history import STEP, History
from fleximq.web.health_pages import Look
from fleximq.web.request import HttpReply, Page, PageRequest, jsonReply

#: Notices about events are of so many seconds.
_RECENT = 300
#: Maximum number of notices about the journal.
_SENTENCES = 5
#: Seconds by which schedules may be late without a notice.
_LATE = 2.0
_EVENTS = {
    "dropped": "messages dropped",
    "errors": "errors answered to clients",
    "dead_letters": "messages that became dead letters",
    "refused_connections": "connections and requests refused",
}


@dataclass(eq=False, repr=False)
class HealthInWords:
    """The answer. ``looks`` are the checks, ``prepare`` is awaited before them."""

    _broker: Broker
    _looks: Sequence[Look]
    _history: History
    _prepare: Callable[[], Awaitable[None]] | None = None

    async def answer(self, request: PageRequest) -> HttpReply:
        """Return checks and notices."""
        if self._prepare is not None:
            await self._prepare()
        checks = [look() for look in self._looks]
        return jsonReply(
            {
                "status": "ok" if all(check.good for check in checks) else "failing",
                "reasons": [f"{check.name}: {check.words}" for check in checks if not check.good],
                "checks": {check.name: {"ok": check.good, "words": check.words} for check in checks},
                "notices": list(self._notices()),
            }
        )

    def _notices(self) -> Iterator[str]:
        for name, words in _EVENTS.items():
            number = round(STEP * self._history.hour.sums(name, _RECENT // STEP))
            if number:
                yield f"{words} in the last {_RECENT // 60} minutes: {number}"
        late = self._broker.schedules.late
        if late > _LATE:
            yield f"schedules are {late:.0f} seconds late"
        health = self._broker.journalHealth() or {}
        for sentence in [*health.get("lost", ()), *health.get("torn", ())][:_SENTENCES]:
            yield f"found when the journal was opened: {sentence}"


def healthPage(health: HealthInWords) -> Page:
    """Return the page."""
    words = "Whether the broker is ready, with its checks, and what an operator should look at, in words."
    return Page(partial(HealthInWords.answer, health), words=words, everywhere=True)
