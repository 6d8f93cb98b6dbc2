"""``fleximq top``."""

import io
import json
import signal

from rich.console import Console
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.client_commands.top import Snapshot, rates, screen
from fleximq.client.blocking import Client
from fleximq.client.payloads import packed
from tests.cli.client_commands.commands import PATIENCE, CommandCase, ran


class TopTests(CommandCase):
    """Topics and clients, and their rates."""

    def test_top(self) -> None:
        """Topics and clients, with rates; without a terminal one look below the other."""
        ran("pub", "busy", "x", "--count", "5")
        told = json.loads(ran("top", "--count", "1", "--interval", "0.05", "--json").out)
        self.assertEqual((told["clients"], told["busiest"][0]["published"]), (1, 5))
        drawn = ran("top", "--count", "2", "--interval", "0.05").out.decode()
        self.assertEqual((drawn.count("messages/s, "), "busy" in drawn), (2, True))

    def test_unreadable(self) -> None:
        """Answers of another shape than a broker's are an error in one sentence, here and for other commands."""
        for answer in (None, [1], {}, {"clients": [1], "next": None}):
            self.patch(Client, "ask", lambda *_, answer=answer: answer)
            self.patch(Client, "ask_packed", lambda *_, answer=answer: packed(answer))
            for words in (("top", "--count", "1"), ("doctor",), ("clients",), ("ban", "ls")):
                found = ran(*words)
                self.assertEqual((found.code, found.err.count("\n")), (1, 1), (words, answer))
                self.assertIn("an answer of the broker cannot be read", found.err)

    def test_stale(self) -> None:
        """While the broker is away, pictures are marked, and the loss is told."""
        process = self.start("top", "--interval", "0.1", "--json")
        assert process.stdout is not None and process.stderr is not None
        pictures = [json.loads(process.stdout.readline())]
        self.broker.stop(signal.SIGKILL)
        while (picture := json.loads(process.stdout.readline()))["stale"] is None:
            pictures.append(picture)
        self.assertEqual(process.stderr.readline(), b"disconnected; reconnecting\n")
        process.send_signal(signal.SIGINT)
        self.assertEqual((process.wait(PATIENCE), pictures[0]["stale"]), (130, None))
        self.assertGreater(picture["stale"], 0)
        shown = io.StringIO()
        Console(file=shown, width=80).print(screen(pictures[0] | {"stale": 7.2}, "tcp://host:1"))
        self.assertTrue(shown.getvalue().startswith("STALE: 7 s old, the broker does not answer\n"))


class PictureTests(SynchronousTestCase):
    """Pictures and rates without a broker."""

    def test_narrow(self) -> None:
        """In 80 columns no number is cut, only texts are; what is wider is used. Control characters are escaped."""
        topic = {"topic": "t" * 99, "published": 123_456_789_012, "subscribers": 12, "queued": 3456, "rate": 98765.4}
        client = {
            "name": "n" * 99, "client_id": 4_000_000, "dialect": "fleximq", "principal": "p" * 99,
            "address": "[2001:db8::1]:50000", "connected": 7_654_321.0, "subscriptions": 1000,
        }  # fmt: skip
        queue = {
            "topic": "q" * 99, "messages": 12_345_678, "in_flight": 65_535, "consumers": 321, "in_per_second": 4321.5,
            "out_per_second": 5432.1, "oldest_seconds": 86_401.0, "paused": True,
        }  # fmt: skip
        found = {"version": "\x1b[2J", "uptime": 1, "clients": 1, "topics": 1, "rate": 1.0, "stale": None,
                 "busiest": [topic], "queues": [queue], "connected": [client]}  # fmt: skip
        for width in (80, 160):
            shown = io.StringIO()
            Console(file=shown, width=width).print(screen(found, "tcp://host:1"))
            for number in (
                "123,456,789,012",
                " 12 ",
                " 3,456 ",
                "98,765",
                " 4000000 ",
                "7,654,321",
                "1,000",
                "12,345,678",
                "65,535",
                "4,322",
                "5,432",
                "86,401",
                "paused",
            ):
                self.assertIn(number, shown.getvalue())
            self.assertEqual(max(map(len, shown.getvalue().splitlines())), width)
            self.assertNotIn("\x1b", shown.getvalue())

    def test_names(self) -> None:
        """A client is shown by the name that it has joined with, or else by the broker's name for it."""
        row = {"name": "fleximq-1000", "client_id": 1000, "dialect": "fleximq", "principal": None, "address": "a:1",
               "connected": 1.0, "subscriptions": 0}  # fmt: skip
        named = row | {"name": "fleximq-1001", "client_id": 1001, "client_name": "billing"}
        found = {"version": "1", "uptime": 1, "clients": 2, "topics": 0, "rate": 0.0, "stale": None, "busiest": [],
                 "queues": [],
                 "connected": [row | {"client_name": None}, named]}  # fmt: skip
        shown = io.StringIO()
        Console(file=shown, width=120).print(screen(found, "tcp://host:1"))
        self.assertIn("fleximq-1000", shown.getvalue())
        self.assertIn("billing", shown.getvalue())
        self.assertNotIn("fleximq-1001", shown.getvalue())

    def test_counts(self) -> None:
        """One client is not ``1 clients``."""
        found = {"version": "1", "uptime": 1, "clients": 1, "topics": 2000, "rate": 0.0, "stale": None, "busiest": [],
                 "queues": [],
                 "connected": []}  # fmt: skip
        shown = io.StringIO()
        Console(file=shown, width=120).print(screen(found, "tcp://host:1"))
        self.assertIn("0 messages/s, 1 client, 2,000 topics", shown.getvalue())

    def test_rates(self) -> None:
        """Messages between two looks, by their time; a topic that was forgotten begins anew."""
        row = {"topic": "t", "published": 10}
        before = Snapshot(1.0, {}, {}, {"t": row}, {})
        self.assertEqual(rates(before, Snapshot(3.0, {}, {}, {"t": row | {"published": 30}}, {})), {"t": 10.0})
        self.assertEqual(rates(before, Snapshot(3.0, {}, {}, {"t": row | {"published": 4}}, {})), {"t": 2.0})
        self.assertEqual(rates(Snapshot(1.0, {}, {}, {}, {}), Snapshot(2.0, {}, {}, {"t": row}, {})), {"t": 10.0})
