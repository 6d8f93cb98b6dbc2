"""The transitions of an outbox: every pair of state and event."""

from itertools import product

from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.outbox_state import TRANSITIONS, OutboxEvent, OutboxState

#: The next state for each event; "-" where the event cannot occur.
TABLE = """
            PAUSE    OVERFLOW   RESUME      CLOSE       END    LOSE
WRITING     PAUSED   -          WRITING     HALF_CLOSED -      CLOSED
PAUSED      -        OVERFLOWED WRITING     DRAINING    -      CLOSED
OVERFLOWED  -        -          WRITING     DRAINING    -      CLOSED
DRAINING    -        -          HALF_CLOSED -           -      CLOSED
HALF_CLOSED DRAINING -          -           -           CLOSED CLOSED
CLOSED      -        -          -           -           -      CLOSED
"""


class OutboxTransitionTests(SynchronousTestCase):
    """The table of transitions."""

    def test_everyPair(self) -> None:
        """Each state and event has the listed next state, and unlisted pairs have none."""
        events, *rows = [line.split() for line in TABLE.strip().splitlines()]
        expected = {(row[0], event): next for row in rows for event, next in zip(events, row[1:], strict=True)}
        for state, event in product(OutboxState, OutboxEvent):
            found = TRANSITIONS[state, event].name if (state, event) in TRANSITIONS else "-"
            self.assertEqual(found, expected.pop((state.name, event.name)), (state, event))
        self.assertEqual(expected, {})
