"""The pages about the process: settings, warnings, journal, groups and cluster."""

from typing import Any

from twisted.logger import Logger, LogLevel, LogPublisher

from fleximq.config.setting_origins import Origin
from fleximq.config.settings import Settings
from fleximq.security.principal import Admitted
from fleximq.web.api import journal_page
from fleximq.web.api.recent_warnings import LASTING, MOST
from tests.web.api.api_case import ApiCase
from tests.web.api.journal_case import JournalCase
from tests.web.asking import Granted


class SettingTests(ApiCase):
    """``/api/settings``."""

    def test_origins(self) -> None:
        """Each setting says where it comes from."""
        self.shown = Settings(keepalive=5.0, redelivery=9.0, listen=("tcp:1",))
        self.origins |= {"keepalive": Origin("file", "/etc/f.toml", 3), "redelivery": Origin("command line")}
        found = self.ask("GET /api/settings").value["origins"]
        shown = [found[name] for name in ("keepalive", "redelivery", "history")]
        self.assertEqual(
            shown,
            [{"source": "file", "path": "/etc/f.toml", "line": 3}, {"source": "command line"}, {"source": "default"}],
        )

    def test_embedded(self) -> None:
        """The settings of a broker in a program come from the program, or are defaults."""
        self.shown = Settings(keepalive=5.0)
        found = self.ask("GET /api/settings").value["origins"]
        self.assertEqual((found["keepalive"], found["history"]), ({"source": "program"}, {"source": "default"}))


class WarningTests(ApiCase):
    """``/api/warnings``."""

    def setUp(self) -> None:
        super().setUp()
        self.log = Logger("fleximq.some", observer=LogPublisher(self.warned))

    def texts(self, query: str = "") -> list[str]:
        """Return the texts."""
        return [each["text"] for each in self.ask(f"GET /api/warnings{query}").value["warnings"]]

    def test_levels(self) -> None:
        """Warnings and worse are remembered, with level and source, and nothing below."""
        self.log.debug("no")
        self.log.info("no")
        self.log.warn("{who} is slow", who="ann", secret="hidden")
        try:
            raise ValueError("secret")
        except ValueError:
            self.log.failure("it failed")
        found = self.ask("GET /api/warnings")
        rows = [(each["number"], each["level"], each["source"], each["text"]) for each in found.value["warnings"]]
        self.assertEqual(
            rows, [(1, "warn", "fleximq.some", "ann is slow"), (2, "critical", "fleximq.some", "it failed")]
        )
        self.assertNotIn(b"secret", found.body)
        self.assertNotIn(b"hidden", found.body)

    def test_lastHour(self) -> None:
        """They are forgotten after an hour."""
        self.log.warn("one")
        self.clock.advance(LASTING / 2)
        self.log.warn("two")
        self.clock.advance(LASTING / 2 + 1)
        self.assertEqual(self.texts(), ["two"])

    def test_bounds(self) -> None:
        """The last ones are remembered, and a long one is cut; they are paged by number."""
        for number in range(MOST + 10):
            self.log.emit(LogLevel.error, "{text}", text=f"{number} {'x' * 5000}")
        first = self.ask("GET /api/warnings?limit=2").value
        self.assertEqual([each["number"] for each in first["warnings"]], [11, 12])
        self.assertEqual(len(first["warnings"][0]["text"]), 1000)
        self.assertEqual(len(self.texts(f"?limit=1000&after={first['next']}")), MOST - 2)

    def test_forAdmins(self) -> None:
        """They are for admins."""
        self.admitted = Admitted(None, Granted("read:api/warnings"))
        self.assertEqual(self.ask("GET /api/warnings").code, 403)


class JournalTests(JournalCase):
    """``/api/journal`` and ``/api/groups``."""

    def test_journal(self) -> None:
        """The journal is shown with its health, rules and files."""
        self.shown = Settings(journal="/", durable=("#",), retention=("#=7d",))
        self.store("t", b"1", b"2")
        found = self.ask("GET /api/journal").value
        journal = found["journal"]
        names = "state", "end", "folder", "fsync", "durable", "retention", "max_bytes", "segments"
        self.assertEqual([journal[name] for name in names], ["ok", 3, "/", "always", ["#"], ["#=7d"], None, 1])
        [row] = found["segments"]
        self.assertEqual((row["base"], row["first"], row["next"], row["lost"]), (0, 1, 3, 0))
        self.assertEqual((row["bytes"], row["latest"]), (journal["bytes"], 1_700_000_001_000))

    def test_filesArePaged(self) -> None:
        """The files are paged by their positions."""
        self.store("t", b"1")
        self.journal.opened.roll()
        self.store("t", b"2")
        first = self.ask("GET /api/journal?limit=1").value
        rest = self.ask(f"GET /api/journal?limit=5&after={first['next']}").value
        bases = [each["base"] for part in (first, rest) for each in part["segments"]]
        self.assertEqual((len(bases), bases[0], rest["next"]), (2, 0, None))
        self.assertEqual(bases[1], first["segments"][0]["end"])

    def test_daysLeft(self) -> None:
        """For how many days the disk will do follows from the growth of the last hour."""
        self.patch(journal_page, "_freeBytes", lambda folder: 10_000_000)
        self.assertEqual(self.outlook(), (10_000_000, None, None))
        for _ in range(25):
            self.clock.advance(1)
        self.store("t", b"x" * 10_000)
        for _ in range(5):
            self.clock.advance(1)
        free, perDay, left = self.outlook()
        self.assertGreater(perDay, 10_000 * 86_400 / 30)
        self.assertEqual(left, round(free / perDay, 1))

    def test_limitComesFirst(self) -> None:
        """A journal with a limit of its own below the disk's never fills the disk."""
        self.test_daysLeft()
        self.shown = Settings(journal="/", journalMaxBytes=1 << 20)
        self.assertIsNone(self.outlook()[2])

    def outlook(self) -> tuple[Any, Any, Any]:
        """Return free bytes, growth and days."""
        journal = self.ask("GET /api/journal").value["journal"]
        return journal["free_bytes"], journal["bytes_per_day"], journal["days_left"]

    def test_wrong(self) -> None:
        """A wrong page is refused."""
        self.assertEqual(self.ask("GET /api/journal?after=x").code, 400)


class WithoutTests(ApiCase):
    """A single broker in memory."""

    def test_none(self) -> None:
        """There is no journal, and no cluster."""
        self.assertEqual(self.ask("GET /api/journal").value, {"journal": None, "segments": [], "next": None})
        self.assertEqual(self.ask("GET /api/cluster").value, {"cluster": None})
