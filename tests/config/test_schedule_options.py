"""The recurring schedules of a settings file."""

from importlib.util import find_spec
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.schedule_options import ScheduleTable, scheduleFaults, schedules
from fleximq.config.settings import Settings
from fleximq.errors import SettingError

HAS_CRONSIM = find_spec("cronsim") is not None


class TableTests(SynchronousTestCase):
    """Tables of [schedules.NAME]."""

    def read(self, **table: Any) -> ScheduleTable:
        """Return one table."""
        [found] = schedules("schedules", {"r": {"topic": "t", **table}})
        return found

    def test_everyIsInSeconds(self) -> None:
        """All other keys have defaults."""
        self.assertEqual(self.read(every=1.5), ScheduleTable("r", "t", every=1500))
        self.assertEqual(Settings.of({"schedules": {"r": {"topic": "t", "every": 2}}}).schedules[0].every, 2000)

    def test_payloadAndHeaderAreMessagePack(self) -> None:
        """Of any value of TOML without dates."""
        found = self.read(every=1, payload={"a": [1, 2.5, True]}, header={"priority": 7}, paused=True)
        self.assertEqual(msgpack.unpackb(found.payload), {"a": [1, 2.5, True]})
        self.assertEqual((msgpack.unpackb(found.header), found.paused), ({"priority": 7}, True))
        self.assertEqual(self.read(every=1, **{"catch-up": "all"}).catchUp, "all")

    def test_cron(self) -> None:
        """With a time zone, UTC by default."""
        found = self.read(cron="0 6 * * *", timezone="Europe/Berlin")
        self.assertEqual((found.cron, found.timezone), ("0 6 * * *", "Europe/Berlin"))
        with self.assertRaisesRegex(SettingError, "'x' is not a cron expression"):
            self.read(cron="x")
        with self.assertRaisesRegex(SettingError, "no time zone 'Nowhere'"):
            self.read(cron="* * * * *", timezone="Nowhere")

    if not HAS_CRONSIM:
        test_cron.skip = "cronsim is not installed"  # type: ignore[attr-defined]

    def test_wrongTables(self) -> None:
        """Each fault has a sentence."""
        for words, table in (
            ("must be a table", 5),
            ("must have a topic", {"every": 1}),
            ("must have a topic", {"topic": "$sys/x", "every": 1}),
            ("either every or cron", {"topic": "t"}),
            ("either every or cron", {"topic": "t", "every": 1, "cron": "* * * * *"}),
            ("at least 1 second", {"topic": "t", "every": 0.5}),
            ("must be none, last or all", {"topic": "t", "every": 1, "catch-up": "x"}),
            ("did you mean every", {"topic": "t", "evry": 1}),
            ("must be a table", {"topic": "t", "every": 1, "header": 5}),
            ("may have 16384 bytes", {"topic": "t", "every": 1, "payload": "x" * (16 << 10)}),
            ("cannot be packed", {"topic": "t", "every": 1, "payload": 1 << 70}),
            ("must be true or false", {"topic": "t", "every": 1, "paused": 1}),
        ):
            [found] = scheduleFaults("schedules", {"r": table, "fine": {"topic": "t", "every": 1}})
            self.assertIn(words, found)

    def test_wrongValues(self) -> None:
        """Instead of tables."""
        with self.assertRaises(SettingError):
            schedules("schedules", [])
        self.assertEqual(len(list(scheduleFaults("schedules", 5))), 1)
