"""The time of one node of a simulation: it can be paused and ended while that of the others goes on."""

from collections.abc import Callable
from random import Random
from typing import Any

from twisted.internet.interfaces import IDelayedCall, IReactorTime
from zope.interface import implementer


@implementer(IReactorTime)
class NodeClock:
    """The seconds of another clock; while it is paused, calls that are due wait.

    :param base: the time of everybody.
    """

    def __init__(self, base: IReactorTime) -> None:
        self._base = base
        self._overdue: list[Callable[[], Any]] = []
        self.paused = self.ended = False

    def seconds(self) -> float:
        """See :class:`IReactorTime`; so with all below."""
        return self._base.seconds()

    def callLater(self, delay: float, callable: Callable[..., Any], *args: object, **kwargs: object) -> IDelayedCall:
        return self._base.callLater(delay, self._do, lambda: callable(*args, **kwargs))

    def getDelayedCalls(self) -> list[IDelayedCall]:
        return list(self._base.getDelayedCalls())

    def _do(self, call: Callable[[], Any]) -> None:
        if self.ended:
            return
        if self.paused:
            self._overdue.append(call)
        else:
            call()

    def resume(self, random: Random) -> None:
        """Go on: what is overdue happens now, in any order, as timers and sockets do after SIGCONT."""
        self.paused = False
        overdue, self._overdue = self._overdue, []
        random.shuffle(overdue)
        for call in overdue:
            self._do(call)
