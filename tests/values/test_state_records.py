"""What a journal knows of consumer groups, from snapshots and notes."""

from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.state_records import (
    ClientIdsReserved,
    GroupForgotten,
    GroupProgress,
    StateRecord,
    dumped,
    follow,
    groupsIn,
)


class GroupsTests(SynchronousTestCase):
    """Snapshots, and notes behind them."""

    def test_thereAndBack(self) -> None:
        """A snapshot gives back what was put into it."""
        words = [GroupProgress("a", 5, 6, 7), GroupProgress("b", 1, 2)]
        snapshot = msgpack.unpackb(msgpack.packb({"groups": dumped(words)}))
        self.assertEqual(groupsIn(snapshot), {"a": words[0], "b": words[1]})

    def test_snapshotOfBrokerThatKnewOfNoGroupsHasNone(self) -> None:
        """A snapshot of a broker that knew of no groups has none."""
        snapshot: Any
        for snapshot in (None, {}, {"groups": []}, []):
            self.assertEqual(groupsIn(snapshot), {})

    def test_lastWordCountsUntilItIsForgotten(self) -> None:
        """The last word counts, until it is forgotten; other notes say nothing."""
        groups: dict[str, GroupProgress] = {}
        notes: list[StateRecord] = [
            GroupProgress("a", 1, 1),
            GroupProgress("b", 1, 1),
            ClientIdsReserved(5),
            GroupProgress("a", 2, 2),
            GroupForgotten("b"),
            GroupForgotten("c"),
        ]
        for note in notes:
            follow(groups, note)
        self.assertEqual(groups, {"a": GroupProgress("a", 2, 2)})
