"""Test cases whose tests mostly wait: all of a module run at the same time."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from tests.conversations.case import SocketCase

Case = TypeVar("Case", bound=SocketCase)
_Test = Callable[[Any], None]

#: The tests of each module as they were written, with their cases.
_written: dict[str, list[tuple[type[SocketCase], _Test]]] = {}
#: Those that run or have run.
_begun: dict[_Test, "Future[None]"] = {}


def atOnce(case: type[Case]) -> type[Case]:
    """Let all tests of a case, and of others in its module, begin with the first that is run.

    A class decorator. Each test has a thread and clients of its own. What it raises is raised where trial runs it,
    so every test is reported as usual.
    """
    for name, test in list(vars(case).items()):
        if name.startswith("test_"):
            _written.setdefault(case.__module__, []).append((case, test))
            setattr(case, name, _awaiting(test))
    return case


def _awaiting(test: _Test) -> _Test:
    def awaiting(self: Any) -> None:
        if test not in _begun:
            for case, each in _written[type(self).__module__]:
                _begun[each] = _begin(case(each.__name__), each)
        _begun[test].result()

    awaiting.__name__ = test.__name__
    awaiting.__doc__ = test.__doc__
    return awaiting


def _begin(instance: SocketCase, test: _Test) -> "Future[None]":
    """Run one test in a thread of its own."""
    future: Future[None] = Future()

    def run() -> None:
        try:
            instance.setUp()
            with instance.open:
                test(instance)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(None)

    threading.Thread(target=run, daemon=True).start()
    return future
