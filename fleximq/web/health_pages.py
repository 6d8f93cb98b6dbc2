"""``/healthz`` and ``/readyz``: whether the broker lives, and whether it should be sent clients.

Both answer 200 or 503 to everybody, and say why to who may ``read`` them.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from fleximq.rights import Action
from fleximq.web.request import HttpReply, Visit, jsonReply


class Check(NamedTuple):
    """One thing that was looked at: its name, whether it is as it should be, and one phrase about it."""

    name: str
    good: bool
    words: str


Look = Callable[[], Check]


class HealthPage:
    """One of the two.

    :param looks: are called for each request; a list that may grow.
    """

    def __init__(self, looks: Sequence[Look]) -> None:
        self._looks = looks

    async def answer(self, visit: Visit) -> HttpReply:
        """Answer 200 if all is good, 503 if not; with all checks if the visitor may read them."""
        checks = [look() for look in self._looks]
        bad = [check for check in checks if not check.good]
        value: dict[str, object] = {"status": "failing" if bad else "ok"}
        if visit.may(Action.READ, visit.path[1:]):
            value["reasons"] = [f"{check.name}: {check.words}" for check in bad]
            value["checks"] = {check.name: {"ok": check.good, "words": check.words} for check in checks}
        return jsonReply(value, 503 if bad else 200)
