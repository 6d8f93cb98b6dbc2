"""Warnings of topics that look like a mistake, e.g. wildcards of another system, at the line of the user's program."""

import threading
import warnings
from collections.abc import Callable
from functools import lru_cache, wraps
from inspect import currentframe
from typing import Any, TypeVar, cast

from fleximq.client.errors import TopicWarning
from fleximq.values.patterns import doubtIn

#: The name of the thread in which the loop of the blocking forms runs.
LOOP_THREAD = "fleximq-queues"
#: Modules between the program and the check; a Deferred of a coroutine runs it.
_BETWEEN = ("fleximq.client", "fleximq.in_process", "twisted.internet.defer")
F = TypeVar("F", bound=Callable[..., Any])


@lru_cache(1024)
def literalDoubt(name: str) -> str | None:
    """Return why a topic, which cannot have wildcards, looks like a mistake; None if not. Raises TypeError."""
    if not isinstance(name, str):
        raise TypeError(f"the topic is {name!r}, but must be a str")
    return doubtIn(name, publishes=True)


def warnOf(doubt: str | None) -> None:
    """Warn of a doubt, if there is one."""
    if doubt is not None:
        frame, level = currentframe(), 1
        while frame is not None and str(frame.f_globals.get("__name__")).startswith(_BETWEEN):
            frame, level = frame.f_back, level + 1
        warnings.warn(doubt, TopicWarning, stacklevel=level)


def literalTopic(method: F) -> F:
    """Check the first argument of a method, a topic without wildcards; only once, in the program's thread."""

    @wraps(method)
    def call(self: Any, topic: str, *arguments: Any, **more: Any) -> Any:
        if threading.current_thread().name != LOOP_THREAD:
            warnOf(literalDoubt(topic))
        return method(self, topic, *arguments, **more)

    return cast(F, call)
