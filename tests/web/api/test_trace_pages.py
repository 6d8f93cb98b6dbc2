"""The pages of traces, and traces of topics."""

from typing import Any

from fleximq.broker.envelope import Envelope, MessageSource
from fleximq.security.principal import Admitted
from fleximq.services.tracing import traces
from fleximq.values.message import Content, Message
from tests.web.api.api_case import ApiCase
from tests.web.asking import Granted


class TraceTests(ApiCase):
    """Traces of topics."""

    def publish(self, name: str, *payloads: bytes) -> None:
        """Publish messages in a run."""
        body = [Message(each, Content.TEXT) for each in payloads]
        self.broker.publish(Envelope(self.broker.topics.get(name), self.ann, MessageSource()), body, len(body))

    def start(self, **about: Any) -> dict[str, Any]:
        """Begin a trace."""
        answer = self.post("/api/trace/start", about)
        self.assertEqual(answer.code, 200, answer.value)
        value: dict[str, Any] = answer.value
        return value

    def lines(self, trace: int) -> list[Any]:
        """Return the lines of a trace."""
        return [
            (row["topic"], row["client_id"], row["count"], row["words"])
            for row in self.ask(f"GET /api/trace?trace={trace}").value["lines"]
        ]

    def test_topic(self) -> None:
        """Publications to a topic are told in words, without their payloads, and only to it."""
        trace = self.start(topic="a.*")["trace"]
        self.publish("a.b", b"secret", b"two")
        self.publish("c", b"x")
        words = "minimq-1000 publishes to 'a.b', 9 bytes of payload, QoS 1"
        self.assertEqual(self.lines(trace), [("a.b", 1000, 2, words)])

    def test_nothingRemains(self) -> None:
        """A trace leaves nothing on its topic when it ends."""
        self.publish("a", b"x")
        topic: Any = self.broker.topics.find("a")
        trace = self.start(topic="a")["trace"]
        self.assertTrue(self.broker.topics.subscribers(topic))
        stopped = self.post("/api/trace/stop", {"trace": trace}).value
        self.assertEqual((stopped["running"], stopped["ended"]), (False, "stopped by an operator"))
        self.assertEqual((self.broker.topics.subscribers(topic), topic.subscribers), ({}, 0))
        self.publish("a", b"y")
        self.assertEqual(self.lines(trace), [])

    def test_endsByItself(self) -> None:
        """It ends after its time, and after its lines; later it is forgotten."""
        first, second = self.start(topic="a", seconds=5)["trace"], self.start(topic="a", limit=2)["trace"]
        for _ in range(3):
            self.publish("a", b"x")
        self.clock.advance(0)
        self.assertEqual(len(self.lines(second)), 2)
        self.clock.advance(5)
        states = [(each["trace"], each["ended"]) for each in self.ask("GET /api/traces").value["traces"]]
        self.assertEqual(states, [(first, "its time is over"), (second, "it has as many lines as asked for")])
        self.clock.advance(traces.KEPT)
        self.assertEqual(self.ask(f"GET /api/trace?trace={first}").code, 404)

    def test_bounds(self) -> None:
        """Few run at once, and few ended ones are remembered."""
        numbers = [self.start(topic="a")["trace"] for _ in range(traces.RUNNING)]
        self.assertEqual(self.post("/api/trace/start", {"topic": "a"}).code, 503)
        for _ in range(traces.ENDED + 2):
            self.post("/api/trace/stop", {"trace": numbers[-1]})
            numbers.append(self.start(topic="a")["trace"])
        shown = self.ask("GET /api/traces").value["traces"]
        ended = [each for each in shown if each["ended"]]
        self.assertEqual((len(shown) - len(ended), len(ended)), (traces.RUNNING, traces.ENDED))

    def test_pages(self) -> None:
        """Lines are paged by number."""
        trace = self.start(topic="a")["trace"]
        for _ in range(5):
            self.publish("a", b"x")
        first = self.ask(f"GET /api/trace?trace={trace}&limit=3").value
        rest = self.ask(f"GET /api/trace?trace={trace}&limit=3&after={first['next']}").value
        numbers = [row["number"] for part in (first, rest) for row in part["lines"]]
        self.assertEqual((numbers, rest["next"]), ([1, 2, 3, 4, 5], None))

    def test_wrong(self) -> None:
        """Wrong arguments are refused, and leave no trace; clients without a connection cannot be traced."""
        for asked, code in (
            ({}, 400),
            ({"topic": "a", "client_id": 1}, 400),
            ({"topic": ""}, 400),
            ({"topic": "/".join("*" * 40)}, 400),
            ({"topic": "a", "limit": 1001}, 400),
            ({"topic": "a", "seconds": 0}, 400),
            ({"client_id": 1}, 404),
            ({"client_id": self.ann.id}, 409),
        ):
            self.assertEqual(self.post("/api/trace/start", asked).code, code, asked)
        self.assertEqual(self.ask("GET /api/traces").value, {"traces": []})
        self.assertEqual(self.ask("GET /api/trace?trace=9").code, 404)

    def test_forAdmins(self) -> None:
        """All of it is for admins."""
        self.admitted = Admitted(None, Granted("read:api/trace", "read:api/traces", "read:api/trace/start"))
        self.assertEqual(self.ask("GET /api/trace?trace=1").code, 403)
        self.assertEqual(self.ask("GET /api/traces").code, 403)
        self.assertEqual(self.post("/api/trace/start", {"topic": "a"}).code, 403)
