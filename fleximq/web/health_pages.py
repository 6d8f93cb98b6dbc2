"""``/healthz`` and ``/readyz``: whether the broker works, and whether it should receive clients.

Both answer 200 or 503 to all requests, and give reasons to those with the right to ``read`` them.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from fleximq.rights import Action
from fleximq.web.request import HttpReply, PageRequest, jsonReply


class Check(NamedTuple):
    """The result of one check: its name, whether it passed, and a phrase about it."""

    name: str
    good: bool
    words: str


Look = Callable[[], Check]


async def healthAnswer(
    looks: Sequence[Look], prepare: Callable[[], Awaitable[None]] | None, request: PageRequest
) -> HttpReply:
    """Answer 200 if all checks pass, else 503, after ``prepare``; with all checks if the request may read them."""
    if prepare is not None:
        await prepare()
    checks = [look() for look in looks]
    bad = [check for check in checks if not check.good]
    value: dict[str, object] = {"status": "failing" if bad else "ok"}
    if request.may(Action.READ, request.path[1:]):
        value["reasons"] = [f"{check.name}: {check.words}" for check in bad]
        value["checks"] = {check.name: {"ok": check.good, "words": check.words} for check in checks}
    return jsonReply(value, 503 if bad else 200)
