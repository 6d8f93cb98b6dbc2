"""The rings of rates, and health in words."""

from fleximq.broker.traffic import Traffic
from fleximq.values.counted_event import CountedEvent, EventFamily
from fleximq.web.api.history import LONG_SAMPLES, LONG_STEP, RATES, SAMPLES, STEP, VALUES, Ring
from fleximq.web.health_pages import Check
from tests.web.api.api_case import ApiCase


class HistoryCase(ApiCase):
    """A broker with a connection."""

    def setUp(self) -> None:
        super().setUp()
        self.traffic = Traffic()
        self.broker.traffic.begin("minimq", self.traffic)

    def pass_(self, seconds: float) -> None:
        """Let so many seconds pass."""
        for _ in range(round(seconds)):
            self.clock.advance(1.0)


class HistoryTests(HistoryCase):
    """``/api/history``."""

    def test_rates(self) -> None:
        """Counters become rates in a second, one for each 5 seconds; numbers are those of the moment."""
        self.pass_(STEP)
        self.traffic.messagesIn, self.traffic.bytesOut = 100, 5000
        self.broker.observers.counted(CountedEvent(EventFamily.DROPPED, "slow consumer"), 10)
        self.pass_(2 * STEP)
        found = self.ask("GET /api/history").value
        series = found["series"]
        self.assertEqual(series["received_messages"], [0, 20, 0])
        self.assertEqual(series["sent_bytes"], [0, 1000, 0])
        self.assertEqual(series["dropped"], [0, 2, 0])
        self.assertEqual((series["connections"], series["clients"]), ([1, 1, 1], [1, 1, 1]))
        times = found["time"]
        self.assertEqual([each - times[0] for each in times], [0, 5000, 10_000])
        self.assertEqual(set(series), {*RATES, *VALUES})

    def test_since(self) -> None:
        """A later request gets the samples that were taken since the answer before."""
        self.pass_(2 * STEP)
        first = self.ask("GET /api/history").value
        self.pass_(STEP)
        second = self.ask(f"GET /api/history?since={first['next']}").value
        self.assertEqual((len(first["time"]), len(second["time"])), (2, 1))
        third = self.ask(f"GET /api/history?since={second['next']}").value
        self.assertEqual((third["time"], third["next"]), ([], second["next"]))

    def test_day(self) -> None:
        """The samples of a minute are averaged for the last day; of delays the largest counts."""
        self.pass_(1)
        self.clock.advance(3.5)
        self.traffic.messagesIn = 600
        self.pass_(LONG_STEP)
        found = self.ask(f"GET /api/history?step={LONG_STEP}").value
        self.assertEqual(len(found["time"]), 1)
        self.assertEqual(found["series"]["received_messages"], [round(600 / 62.5, 3)])
        self.assertEqual(found["series"]["lag"], [2.5])

    def test_agesOfMessagesAreKnownWithoutEarlierRequests(self) -> None:
        """The age of a message in a queue counts from the sample after its arrival."""
        self.produce("a", b"1")
        self.pass_(4 * STEP)
        (row,) = self.ask("GET /api/queues").value["queues"]
        self.assertEqual(row["oldest_seconds"], 3 * STEP)

    def test_wrong(self) -> None:
        """Other steps and times are refused."""
        for query in ("step=7", "step=x", "since=-1", "since=x"):
            self.assertEqual(self.ask(f"GET /api/history?{query}").code, 400, query)

    def test_connectionsThatEndCount(self) -> None:
        """The traffic of connections that ended meanwhile counts."""
        self.pass_(STEP)
        self.traffic.messagesIn = 50
        self.broker.traffic.end("minimq", self.traffic)
        self.pass_(STEP)
        self.assertEqual(self.ask("GET /api/history").value["series"]["received_messages"], [0, 10])

    def test_manyConnectionsAreCountedInSeveralTurns(self) -> None:
        """Many connections are counted in several turns, each once."""
        self.pass_(STEP)
        for _ in range(5000):
            traffic = Traffic()
            traffic.messagesIn = 1
            self.broker.traffic.begin("minimq", traffic)
        self.pass_(STEP)
        self.assertEqual(self.history.hour.since(0)["received_messages"], [0, 1000])


class RingTests(HistoryCase):
    """The ring."""

    def test_size(self) -> None:
        """The rings have a fixed size, of 1 MB at most."""
        columns = len(RATES) + len(VALUES) + 1
        self.assertLess(8 * columns * (SAMPLES + LONG_SAMPLES), 1 << 20)

    def test_oldestGive(self) -> None:
        """The oldest samples give way, and the others stay in order."""
        ring = Ring(3)
        for time in range(1, 6):
            ring.add(dict.fromkeys((*RATES, *VALUES), time) | {"time": time})
        self.assertEqual(ring.since(0)["time"], [3, 4, 5])
        self.assertEqual((ring.since(3)["lag"], ring.sums("lag", 2), ring.sums("lag", 9)), ([4, 5], 9, 12))


class HealthTests(HistoryCase):
    """``/api/health``."""

    def test_good(self) -> None:
        """A broker without faults is ok, and there is nothing to look at."""
        self.pass_(STEP)
        found = self.ask("GET /api/health")
        checks = {"one": {"ok": True, "words": "fine"}}
        self.assertEqual(found.value, {"status": "ok", "reasons": [], "checks": checks, "notices": []})

    def test_failing(self) -> None:
        """A failed check is a reason, and the page itself succeeds."""
        self.checks = [Check("one", False, "the disk is full")]
        found = self.ask("GET /api/health")
        self.assertEqual((found.code, found.value["status"], found.value["reasons"]),
                         (200, "failing", ["one: the disk is full"]))  # fmt: skip

    def test_notices(self) -> None:
        """Events of the last minutes are notices, and are forgotten later."""
        self.pass_(STEP)
        self.broker.observers.counted(CountedEvent(EventFamily.DEAD_LETTERS, "rejected"), 3)
        self.pass_(STEP)
        notices = self.ask("GET /api/health").value["notices"]
        self.assertEqual(notices, ["messages that became dead letters in the last 5 minutes: 3"])
        self.pass_(300)
        self.assertEqual(self.ask("GET /api/health").value["notices"], [])
