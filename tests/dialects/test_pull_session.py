"""The transitions of sessions whose peers pull: every pair of state and event."""

from itertools import product

from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.pull_session import TRANSITIONS, PullEvent, PullState

#: The next state for each event; "-" where the event cannot occur.
TABLE = """
                 CHECK    COMMIT_PENDING  OUTBOX_FULL     LOAD    QUEUE_EMPTY      TURN_OVER     RESUME CONTINUE
READY            CHECKING AWAITING_COMMIT AWAITING_READER LOADING AWAITING_MESSAGE AWAITING_TURN -      READY
CHECKING         -        -               -               -       -                -             READY  -
AWAITING_COMMIT  -        -               AWAITING_READER LOADING AWAITING_MESSAGE -             -      READY
AWAITING_READER  -        -               -               -       -                -             READY  AWAITING_READER
LOADING          -        -               -               -       -                -             READY  LOADING
AWAITING_MESSAGE -        -               -               -       -                -             -      READY
AWAITING_TURN    -        -               -               -       -                -             READY  AWAITING_TURN
"""


class PullTransitionTests(SynchronousTestCase):
    """The table of transitions."""

    def test_everyPair(self) -> None:
        """Each state and event has the listed next state, and unlisted pairs have none."""
        events, *rows = [line.split() for line in TABLE.strip().splitlines()]
        expected = {(row[0], event): next for row in rows for event, next in zip(events, row[1:], strict=True)}
        for state, event in product(PullState, PullEvent):
            found = TRANSITIONS[state, event].name if (state, event) in TRANSITIONS else "-"
            self.assertEqual(found, expected.pop((state.name, event.name)), (state, event))
        self.assertEqual(expected, {})
