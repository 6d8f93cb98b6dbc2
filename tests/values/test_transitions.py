"""Tests of state tables."""

from enum import Enum

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.transitions import Transitions, UnexpectedEvent


class _Door(Enum):
    OPEN = "open"
    SHUT = "shut"


class _Push(Enum):
    IN = "in"
    OUT = "out"


_DOOR = Transitions({(_Door.OPEN, _Push.OUT): _Door.SHUT, (_Door.SHUT, _Push.IN): _Door.OPEN})


class TransitionsTests(SynchronousTestCase):
    """A table of two states."""

    def test_listedPairGivesNextState(self) -> None:
        """A listed pair gives the next state."""
        self.assertIs(_DOOR[_Door.OPEN, _Push.OUT], _Door.SHUT)
        self.assertIs(_DOOR[_Door.SHUT, _Push.IN], _Door.OPEN)

    def test_missingInTests(self) -> None:
        """A missing pair is an error in tests."""
        with self.assertRaises(UnexpectedEvent) as raised:
            _DOOR[_Door.OPEN, _Push.IN]
        self.assertEqual(str(raised.exception), "_Push.IN in _Door.OPEN")

    def test_aMissingPairInProductionIsIgnoredAndWarnedOfOnce(self) -> None:
        """The state stays, and the log has one warning however often it happens."""
        self.patch(Transitions, "strict", False)
        door = Transitions(_DOOR)
        with self.assertLogs("fleximq.values.transitions", "WARNING") as logged:
            for _ in range(2):
                self.assertIs(door[_Door.OPEN, _Push.IN], _Door.OPEN)
        sentence = "_Push.IN was ignored in _Door.OPEN, which has no transition for it"
        self.assertEqual([each.getMessage() for each in logged.records], [sentence])
