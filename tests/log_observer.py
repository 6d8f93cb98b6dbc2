"""Observers of the program's log, for tests."""

from collections.abc import Callable
from typing import cast

from twisted.logger import ILogObserver, LogEvent, globalLogPublisher
from twisted.trial.unittest import SynchronousTestCase


def observeLog(test: SynchronousTestCase, observe: Callable[[LogEvent], object]) -> None:
    """Call a function with every event that is logged, until the test ends."""
    observer = cast(ILogObserver, observe)
    globalLogPublisher.addObserver(observer)
    test.addCleanup(globalLogPublisher.removeObserver, observer)
