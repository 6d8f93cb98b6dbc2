"""Every pair of state and event of the deadlines, and of a feed."""

from collections.abc import Mapping
from enum import Enum
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker import deadlines
from fleximq.broker.replay.feed import FEED_TRANSITIONS, FeedEvent, FeedState
from fleximq.values.transitions import Transitions, UnexpectedEvent


class _EveryPair(SynchronousTestCase):
    """Compares a table with its expected rows: a state's name, and for each event the next state or ``-``."""

    def check(
        self, table: Transitions[Any, Any], states: type[Enum], events: type[Enum], rows: Mapping[str, str]
    ) -> None:
        found = {}
        for state in states:
            nexts = []
            for event in events:
                try:
                    nexts.append(table[state, event].name)
                except UnexpectedEvent:
                    nexts.append("-")
            found[state.name] = " ".join(nexts)
        self.assertEqual(found, dict(rows))


class DeadlinesStatesTests(_EveryPair):
    """The deadlines' table."""

    def test_everyPair(self) -> None:
        """Columns: DUE, DONE, STOP. Stopping while actions run is final."""
        rows = {"IDLE": "RUNNING - STOPPED", "RUNNING": "- IDLE STOPPED", "STOPPED": "- STOPPED STOPPED"}
        self.check(deadlines.TRANSITIONS, deadlines.State, deadlines.Event, rows)


class FeedStatesTests(_EveryPair):
    """A feed's table."""

    def test_everyPair(self) -> None:
        """Columns: the events in their order, from READ, READ_ENDED, FOUND, SENT to FAILED, RANGES_ENDED, CLOSE."""
        rows = {
            "IDLE": "READING - SENDING - WAITING_FOR_SPACE - LIVE IDLE FAILING - CLOSED",
            "READING": "- IDLE - - - - - READING FAILING - CLOSED",
            "SENDING": "- - - IDLE - - - SENDING - - CLOSED",
            "WAITING_FOR_SPACE": "- - - - - IDLE - WAITING_FOR_SPACE - - CLOSED",
            "LIVE": "- - - - - - - IDLE - - CLOSED",
            "FAILING": "- - - - - - - FAILING - IDLE CLOSED",
            "CLOSED": "- CLOSED - CLOSED - CLOSED - CLOSED - CLOSED CLOSED",
        }
        self.check(FEED_TRANSITIONS, FeedState, FeedEvent, rows)
