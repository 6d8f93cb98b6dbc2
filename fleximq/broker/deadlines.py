"""Runs actions at their times, with one heap and one timer of the clock for all of them.

A cancelled deadline stays in the heap until it is due, or until three quarters of the heap are cancelled, so making and
cancelling cost O(log n) amortised.
"""

from collections.abc import Callable
from enum import Enum, auto
from heapq import heapify, heappop, heappush
from typing import Protocol

from fleximq.values.transitions import Transitions

#: Seconds by which a moment may be early and still count as reached: sums of floats are not exact.
TOLERANCE = 1e-6

#: Seconds after which the rest of many due actions waits for the next turn.
TURN = 0.01


class State(Enum):
    """Whether actions wait, run, or are cancelled permanently."""

    IDLE = auto()
    RUNNING = auto()
    STOPPED = auto()


class Event(Enum):
    """The timer's call, the end of its actions, and :meth:`Deadlines.stop`."""

    DUE = auto()
    DONE = auto()
    STOP = auto()


TRANSITIONS: Transitions[State, Event] = Transitions(
    {
        (State.IDLE, Event.DUE): State.RUNNING,
        (State.RUNNING, Event.DONE): State.IDLE,
        (State.STOPPED, Event.DONE): State.STOPPED,
    }
    | {(state, Event.STOP): State.STOPPED for state in State}
)


class Timer(Protocol):
    """One scheduled call of a clock; Twisted's ``IDelayedCall`` fits."""

    def active(self) -> bool:
        """Tell whether the call is still scheduled."""

    def cancel(self) -> None:
        """Cancel the call."""


class Clock(Protocol):
    """The time, and calls at a later time; Twisted's ``IReactorTime`` and ``task.Clock`` fit."""

    def seconds(self) -> float:
        """Return the present time in seconds since some fixed moment."""

    def callLater(self, delay: float, call: Callable[..., object], /, *arguments: object) -> Timer:
        """Call ``call(*arguments)`` once, ``delay`` seconds from now."""


class Deadline:
    """A scheduled action; made by :meth:`Deadlines.callLater`."""

    __slots__ = ("_action", "_owner")

    def __init__(self, owner: "Deadlines", action: Callable[[], None]) -> None:
        self._owner = owner
        self._action: Callable[[], None] | None = action

    def active(self) -> bool:
        """Return whether the action is scheduled: neither started nor cancelled."""
        return self._action is not None

    def cancel(self) -> None:
        """Cancel the action. A no-op if it has started or was cancelled."""
        if self._action is not None:
            self._action = None
            self._owner._noteCancelled()

    def _begin(self) -> Callable[[], None] | None:
        action, self._action = self._action, None
        return action


def _raise(error: Exception) -> None:
    raise error


class Deadlines:
    """All deadlines of one broker; ``seconds`` (the clock's function) and ``onError`` are for users' own callbacks,
    too.

    :param onError: called with exceptions of actions. Without it an exception propagates to the clock, and other due
        actions run in the clock's next turn.
    :param afterwards: called once after each batch of actions that were due together and ran in one turn.
    """

    def __init__(
        self, clock: Clock, onError: Callable[[Exception], None] = _raise, afterwards: Callable[[], None] | None = None
    ) -> None:
        self.seconds: Callable[[], float] = clock.seconds
        self.onError = onError
        self._clock = clock
        self._afterwards = afterwards
        self._heap: list[tuple[float, int, Deadline]] = []
        self._made = 0
        self._cancelled = 0
        self._timer: Timer | None = None
        self._timerAt = 0.0
        self._state = State.IDLE

    def __len__(self) -> int:
        return len(self._heap) - self._cancelled

    def callLater(self, delay: float, action: Callable[[], None]) -> Deadline:
        """Call ``action`` once, ``delay`` seconds from now; actions of the same moment run in the order of their calls.

        An action's own calls with delay 0 run in a later turn. After :meth:`stop` the deadline is returned cancelled.
        """
        deadline = Deadline(self, action)
        if self._state is State.STOPPED:
            deadline._begin()
            return deadline
        self._made += 1
        heappush(self._heap, (self.seconds() + delay, self._made, deadline))
        if self._heap[0][2] is deadline:
            self._arm()
        return deadline

    def stop(self) -> None:
        """Cancel all actions and the timer, permanently."""
        self._state = TRANSITIONS[self._state, Event.STOP]
        for _, _, deadline in self._heap:
            deadline._begin()
        self._heap.clear()
        self._cancelled = 0
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None

    def _noteCancelled(self) -> None:
        self._cancelled += 1
        if self._cancelled * 4 > len(self._heap) * 3:
            self._heap[:] = [entry for entry in self._heap if entry[2]._action is not None]
            heapify(self._heap)
            self._cancelled = 0

    def _arm(self) -> None:
        """Set the timer to the first deadline, unless it is already set to that time or an earlier one."""
        while self._heap and self._heap[0][2]._action is None:
            heappop(self._heap)
            self._cancelled -= 1
        if not self._heap or self._state is State.RUNNING:
            return
        when = self._heap[0][0]
        if self._timer is not None:
            if self._timerAt <= when:
                return
            self._timer.cancel()
        self._timerAt = when
        self._timer = self._clock.callLater(max(0.0, when - self.seconds()), self._run)

    def _run(self) -> None:
        self._timer = None
        self._state = TRANSITIONS[self._state, Event.DUE]
        ran = False
        try:
            ran = self._runDue(self.seconds() + TOLERANCE, self._made)
        finally:
            self._state = TRANSITIONS[self._state, Event.DONE]
            self._arm()
        if ran and self._afterwards is not None:
            self._attempt(self._afterwards)

    def _runDue(self, now: float, last: int) -> bool:
        """Run actions due by ``now`` and not newer than ``last``: an action must not extend its own batch. Ends after
        :data:`TURN`, too.
        """
        ran = False
        while self._heap and self._heap[0][0] <= now and self._heap[0][1] <= last:
            if ran and self.seconds() > now + TURN:
                break
            action = heappop(self._heap)[2]._begin()
            if action is None:
                self._cancelled -= 1
            else:
                ran = True
                self._attempt(action)
        return ran

    def _attempt(self, action: Callable[[], None]) -> None:
        try:
            action()
        except Exception as error:
            self.onError(error)
