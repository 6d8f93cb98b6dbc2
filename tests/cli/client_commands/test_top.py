"""``fleximq top``."""

import json

from fleximq.cli.client_commands.top import Snapshot, rates
from tests.cli.client_commands.commands import CommandCase, ran


class TopTests(CommandCase):
    """Topics and clients, and their rates."""

    def test_top(self) -> None:
        """Topics and clients, with rates; without a terminal one look below the other."""
        ran("pub", "busy", "x", "--count", "5")
        told = json.loads(ran("top", "--count", "1", "--interval", "0.05", "--json").out)
        self.assertEqual((told["clients"], told["busiest"][0]["published"]), (1, 5))
        drawn = ran("top", "--count", "2", "--interval", "0.05").out.decode()
        self.assertEqual((drawn.count("messages/s, "), "busy" in drawn), (2, True))

    def test_rates(self) -> None:
        """Messages between two looks, by their time; a topic that was forgotten begins anew."""
        row = {"topic": "t", "published": 10}
        before = Snapshot(1.0, {}, {}, {"t": row})
        self.assertEqual(rates(before, Snapshot(3.0, {}, {}, {"t": row | {"published": 30}})), {"t": 10.0})
        self.assertEqual(rates(before, Snapshot(3.0, {}, {}, {"t": row | {"published": 4}})), {"t": 2.0})
        self.assertEqual(rates(Snapshot(1.0, {}, {}, {}), Snapshot(2.0, {}, {}, {"t": row})), {"t": 10.0})
