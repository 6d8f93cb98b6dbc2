"""``/api/journal``: its health, its files, its retention, and for how many days the disk suffices."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import Any

from fleximq.broker.broker import Broker
from fleximq.broker.paths.arguments import Listing, page
from fleximq.config.settings import Settings
from fleximq.values.records import SegmentState
from fleximq.web.api.answers import PAGED_BY_NUMBER
from fleximq.web.api.history import History
from fleximq.web.request import HttpReply, Page, PageRequest, jsonReply

_DAY = 86_400


@dataclass(frozen=True, slots=True)
class JournalInWords:
    """The answer."""

    broker: Broker
    settings: Callable[[], Settings]
    history: History

    async def answer(self, request: PageRequest) -> HttpReply:
        """Return the state of the journal, and a page of its files by position; without one on disk, null."""
        some = page(request.arguments, int, -1)
        journal = self.broker.journal
        if not journal.onDisk:
            return jsonReply({"journal": None, "segments": [], "next": None})
        settings = self.settings()
        shown = {
            "id": journal.id,
            "folder": settings.journal,
            "end": journal.end,
            **journal.health(),
            "fsync": settings.fsync,
            "durable": list(settings.durable),
            "retain": list(settings.retain),
            "retention": list(settings.retention),
            "max_bytes": settings.journalMaxBytes or None,
            **self._outlook(settings, journal.health().get("bytes", 0)),
        }
        rows = Listing("segments", journal.segmentStates(), attrgetter("base"), _row, *some).atOnce()
        return jsonReply({"journal": shown, **rows})

    def _outlook(self, settings: Settings, size: int) -> dict[str, Any]:
        """Return the free bytes, the growth in a day at the present rate, and for how many days the disk suffices; None
        while the journal does not grow, or reaches its own limit first.
        """
        free = _freeBytes(settings.journal or ".")
        growth = self.history.growth("journal_bytes")
        perDay = None if growth is None else round(growth * _DAY)
        isLimited = bool(settings.journalMaxBytes) and free is not None and settings.journalMaxBytes - size < free
        left = round(free / perDay, 1) if free is not None and perDay and perDay > 0 and not isLimited else None
        return {"free_bytes": free, "bytes_per_day": perDay, "days_left": left}


def _freeBytes(folder: str) -> int | None:
    try:
        found = os.statvfs(folder)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize


def _row(segment: SegmentState) -> dict[str, Any]:
    latest = segment.latest
    return {**segment._asdict(), "latest": None if latest is None else latest // 1000}


def journalPage(journal: JournalInWords) -> Page:
    """Return the page."""
    words = "The journal: health and damage, its files by position, retention, and for how many days the disk suffices."
    return Page(partial(JournalInWords.answer, journal), words=words, arguments=PAGED_BY_NUMBER, everywhere=True)
