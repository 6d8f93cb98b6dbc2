"""Finds in a source the reads of the system clock, with ``ast``.

Durations are measured by ``time.monotonic``, the reactor of the broker or the loop of asyncio. The system clock can be
set at any time, so each of its reads needs a reason, which :mod:`tests.test_wall_clock` lists.
"""

import ast
from collections.abc import Iterator

#: Functions that return the present time of the system clock, by their modules.
_FUNCTIONS = {
    "time": {"time", "time_ns", "ctime", "localtime", "gmtime", "asctime", "strftime", "CLOCK_REALTIME"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
    "runtime": {"seconds"},
}
#: Those of them that convert another time if they are given one, and the number of arguments from which on.
_CONVERSIONS = {"ctime": 1, "localtime": 1, "gmtime": 1, "asctime": 1, "strftime": 2}
_MODULES = {"time": "time", "datetime": "datetime", "twisted.python.runtime": "runtime"}


def wallReads(source: str, isForeign: bool = False) -> Iterator[tuple[int, str]]:
    """Yield line and name of each read of the system clock, in calls and as a function that is passed on.

    :param isForeign: whether reactors in this source are those of other programs, whose timers follow that clock too.
    """
    tree = ast.parse(source)
    for parent in ast.walk(tree):
        for node in ast.iter_child_nodes(parent):
            name = _named(node)
            if name is not None and not (
                isinstance(parent, ast.Call) and parent.func is node and len(parent.args) >= _CONVERSIONS.get(name, 99)
            ):
                yield node.lineno, name  # type: ignore[attr-defined]
            elif isForeign and isinstance(node, ast.Attribute) and node.attr in ("callLater", "seconds"):
                if "reactor" in ast.unparse(node.value).lower():
                    yield node.lineno, ast.unparse(node)


def _named(node: ast.AST) -> str | None:
    """Return the name of a function of the system clock; None for anything else."""
    if isinstance(node, ast.Attribute):
        owner = node.value
        module = owner.id if isinstance(owner, ast.Name) else owner.attr if isinstance(owner, ast.Attribute) else ""
        return node.attr if node.attr in _FUNCTIONS.get(module, ()) else None
    if isinstance(node, ast.ImportFrom):
        functions = _FUNCTIONS.get(_MODULES.get(node.module or "", ""), set())
        return next((each.name for each in node.names if each.name in functions), None)
    return None
