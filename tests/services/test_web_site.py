"""What makes a broker ready, and alive."""

from typing import Any, NamedTuple, cast

from twisted.internet.task import Clock
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.services.compose import compose
from fleximq.services.web_site import LIVE_LAG, READY_LAG, Health, LagService, listenersOf
from fleximq.web.api.api import apiTable


class Place(NamedTuple):
    """A listener."""

    listen: str
    port: Any


class FakeBroker:
    """Its journal is as it is told."""

    def __init__(self) -> None:
        self.health: dict[str, Any] | None = None

    def journalHealth(self) -> dict[str, Any] | None:
        """See Broker."""
        return self.health


class StandbyTests(SynchronousTestCase):
    """The pages of a node that does not own the journal."""

    def test_pages(self) -> None:
        """It answers those about itself, and refuses all others."""
        told = apiTable()
        everywhere = {path for path, page in told.items() if page.everywhere}
        self.assertEqual(
            everywhere,
            {
                "/api/", "/api/about", "/api/cluster", "/api/health", "/api/history", "/api/journal", "/api/rights",
                "/api/settings", "/api/warnings",
            },
        )  # fmt: skip


class HealthTests(SynchronousTestCase):
    """One thing at a time goes wrong."""

    def setUp(self) -> None:
        """A broker that is well."""
        self.clock: Any = Clock()
        self.broker = cast(Any, FakeBroker())
        self.lag = LagService(self.clock)
        self.lag.startService()
        self.places = [Place("tcp:1", object()), Place("tcp:2", object())]
        self.stopping = False
        self.health = Health(self.broker, self.lag, lambda: self.places, lambda: self.stopping)

    def bad(self) -> dict[str, str]:
        """Return what is wrong with its readiness."""
        checks = [look() for look in self.health.ready]
        return {check.name: check.words for check in checks if not check.good}

    def test_well(self) -> None:
        """Nothing is wrong; without a journal there is nothing to be recovered."""
        self.assertEqual(self.bad(), {})
        self.broker.health = {"state": "ok", "reason": ""}
        self.assertEqual(self.bad(), {})

    def test_journal(self) -> None:
        """A journal that takes nothing says why."""
        self.broker.health = {"state": "read-only", "reason": "No space left on device"}
        self.assertEqual(self.bad(), {"journal": "read-only: No space left on device"})
        self.broker.health["retries"] = True
        words = "read-only: No space left on device; the broker tries again by itself"
        self.assertEqual(self.bad(), {"journal": words})

    def test_listeners(self) -> None:
        """A listener that is not open is named."""
        self.places[1] = Place("tcp:2", None)
        self.assertEqual(self.bad(), {"listeners": "not open: tcp:2"})

    def test_leaving(self) -> None:
        """Who is about to stop should get no clients."""
        self.stopping = True
        self.assertEqual(self.bad(), {"draining": "the broker is about to stop"})

    def test_late(self) -> None:
        """A late event loop is not ready, a very late one does not live."""
        for late, ready, live in (
            (READY_LAG, True, True),
            (READY_LAG + 0.5, False, True),
            (LIVE_LAG + 1, False, False),
        ):
            self.lag._measured = late
            self.assertEqual(not self.bad(), ready, late)
            self.assertEqual(all(look().good for look in self.health.live), live, late)


class ListenersTests(SynchronousTestCase):
    """Listeners that are looked at."""

    def test_all(self) -> None:
        """Those of dialects and those of HTTP alone are found, however deep."""
        whole = compose(MemoryReactorClock(), Settings(listen=("tcp:1",), http=("tcp:2", "tcp:3")))
        self.assertEqual(sorted(str(each.listen) for each in listenersOf(whole)), ["tcp:1", "tcp:2", "tcp:3"])
