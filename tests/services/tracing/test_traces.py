"""Traces of a real broker's clients and topics."""

import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.request import Request, urlopen

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from tests.broker_process import BrokerProcess


class TraceCase(SynchronousTestCase):
    """A broker."""

    def setUp(self) -> None:
        self.broker = BrokerProcess()
        self.broker.__enter__()
        self.addCleanup(self.broker.__exit__, None, None, None)
        self.at = f"127.0.0.1:{self.broker.port()}"

    def ask(self, path: str, posted: Any = None) -> Any:
        """Return an answer of the API."""
        body = None if posted is None else json.dumps(posted).encode()
        request = Request(f"http://{self.at}/api/{path}", body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=300) as answer:
            return json.load(answer)

    def begin(self, **about: Any) -> int:
        """Begin a trace."""
        return int(self.ask("trace/start", about)["trace"])

    def lines(self, trace: int, isDone: Callable[[list[Any]], bool]) -> list[Any]:
        """Return direction, kind and words of the lines, as soon as they are complete."""
        found: list[Any] = []

        def complete() -> bool:
            rows = self.ask(f"trace?trace={trace}&limit=1000")["lines"]
            found[:] = [(row["direction"], row["kind"], row["words"]) for row in rows]
            return isDone(found)

        self.broker.waitFor(complete, "the lines of a trace")
        return found


class ClientTests(TraceCase):
    """Traces of clients."""

    def test_fleximq(self) -> None:
        """The frames of a FlexiMQ client are told in both directions, on a stream and on a WebSocket."""
        for scheme in ("tcp", "ws"):
            with connect(f"{scheme}://{self.at}") as client:
                trace = self.begin(client_id=client.id)
                with client.subscribe("t") as messages:
                    client.flush()
                    client.publish("t", "hello")
                    messages.next(timeout=300)
                    client.flush()
                found = self.lines(trace, lambda rows: sum(kind == "PONG" for _, kind, _ in rows) >= 2)
                self.ask("trace/stop", {"trace": trace})
                client.publish("t", "untold")
                client.flush()
            kinds = [(direction, kind) for direction, kind, _ in found]
            for expected in (("in", "SUB"), ("in", "PUB"), ("out", "PUB"), ("in", "PING"), ("out", "PONG")):
                self.assertIn(expected, kinds, scheme)
            self.assertNotIn("cannot be read", str(found))
            self.assertIn("topic 't', 6 bytes of payload", next(words for _, kind, words in found if kind == "PUB"))
            state = self.ask(f"trace?trace={trace}")
            self.assertEqual((state["frames"], state["ended"]), (len(found), "stopped by an operator"))

    def test_minimq(self) -> None:
        """So are the lines of MiniMQ; the trace ends with its client."""
        with socket.create_connection(("127.0.0.1", self.broker.port())) as stream:
            file = stream.makefile("rwb")
            file.write(b"PING:\n")
            file.flush()
            file.readline()
            [row] = self.ask("clients?dialect=minimq")["clients"]
            trace = self.begin(client_id=row["client_id"])
            file.write(b"CONSUME:q\n")
            file.flush()
            file.readline()
            file.close()
        self.broker.waitFor(lambda: not self.ask(f"trace?trace={trace}")["running"], "the end of a trace")
        found = self.lines(trace, lambda rows: True)
        self.assertEqual(found, [("in", "CONSUME", "'q'"), ("out", "line", "'NO_MSG'")])
        self.assertEqual(self.ask(f"trace?trace={trace}")["ended"], "the client has left")

    def test_limit(self) -> None:
        """A trace ends by itself after so many lines, and the client works on."""
        with connect(f"tcp://{self.at}") as client:
            trace = self.begin(client_id=client.id, limit=3)
            for _ in range(5):
                client.flush()
            self.broker.waitFor(lambda: not self.ask(f"trace?trace={trace}")["running"], "the end of a trace")
            state = self.ask(f"trace?trace={trace}&limit=2")
            self.assertEqual((len(state["lines"]), state["next"], state["frames"]), (2, 2, 3))
            self.assertEqual(state["ended"], "it has as many lines as asked for")
            client.flush()
