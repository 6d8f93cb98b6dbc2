"""The states of the journal on disk: every pair of state and event."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.disk_writing import TRANSITIONS, Event, State

#: By state, the next one after BEGIN, REOPEN, CHECKED and CLOSE; "-": cannot happen.
TABLE = """
NEW        RUNNING  -          -        CLOSED
RUNNING    -        REOPENING  -        CLOSED
REOPENING  -        -          RUNNING  CLOSED
CLOSED     -        -          CLOSED   CLOSED
"""


class JournalStateTests(SynchronousTestCase):
    """The table."""

    def test_everyPair(self) -> None:
        """Each event leads to the state of the table."""
        rows = [line.split() for line in TABLE.strip().splitlines()]
        self.assertEqual([row[0] for row in rows], [state.name for state in State])
        for state, row in zip(State, rows, strict=True):
            nexts = [TRANSITIONS[state, event].name if (state, event) in TRANSITIONS else "-" for event in Event]
            self.assertEqual(nexts, row[1:], state)
