"""The state table of a class: one enum of states, one enum of events, and the next state for each pair.

A transition is ``self._state = _TRANSITIONS[self._state, Event.DRAINED]`` and costs one look-up; code between
transitions compares the state with ``is``, at no cost.
"""

import logging
from enum import Enum
from typing import ClassVar, TypeVar

_log = logging.getLogger(__name__)

State = TypeVar("State", bound=Enum)
Event = TypeVar("Event", bound=Enum)


class UnexpectedEvent(Exception):
    """An event has no transition from the current state."""


class Transitions(dict[tuple[State, Event], State]):
    """The next state by state and event. A missing pair is a fault of the program: it leaves the state unchanged, and
    the first one of a kind is logged as a warning, with the standard library's logging: clients have no other, and
    twistd writes its lines to the broker's log.

    While ``strict``, as in tests, a missing pair raises :class:`UnexpectedEvent`.
    """

    strict: ClassVar[bool] = False

    def __missing__(self, pair: tuple[State, Event]) -> State:
        state, event = pair
        if self.strict:
            raise UnexpectedEvent(f"{event} in {state}")
        _log.warning("%s was ignored in %s, which has no transition for it", event, state)
        self[pair] = state
        return state
