"""``fleximq pub`` and ``fleximq sub``, with a broker between them."""

import json
import os
import signal
import time
import warnings
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

from fleximq.cli.client_commands import sub as sub_
from fleximq.client.errors import TopicWarning
from tests.cli.client_commands.commands import PATIENCE, CommandCase, ran


class PubTests(CommandCase):
    """``pub``."""

    def published(self, *words: str, input: bytes = b"") -> list[object]:
        """Return what a subscriber gets of what is published with these words; the last is ``end``."""
        client = self.client()
        with client.subscribe("t") as subscription:
            found = ran("pub", "t", *words, "--quiet", input=input)
            self.assertEqual((found.code, found.out, found.err), (0, b"", ""))
            client.publish("t", "end")
            client.flush()
            values = []
            while (delivery := subscription.next(PATIENCE)) is not None and delivery.value != "end":
                values.append(delivery.value)
            return values

    def test_value(self) -> None:
        """A value, as text, JSON or bytes."""
        self.assertEqual(self.published("hello"), ["hello"])
        self.assertEqual(self.published('{"a": 1}', "--as", "json"), [{"a": 1}])
        self.assertEqual(self.published("00ff", "--as", "hex"), [b"\x00\xff"])
        self.assertEqual(self.published("--as", "json", "[1]"), [[1]])

    def test_count(self) -> None:
        """The same again and again."""
        self.assertEqual(self.published("x", "--count", "2500"), ["x"] * 2500)

    def test_rate(self) -> None:
        """With a rate all of it comes as well."""
        self.assertEqual(self.published("x", "--count", "3", "--rate", "1000"), ["x"] * 3)

    def test_lines(self) -> None:
        """Each line of standard input, whatever its end."""
        self.assertEqual(self.published(input=b"one\r\ntwo\n\nfour"), ["one", "two", "", "four"])
        self.assertEqual(self.published("--count", "2", input=b"1\n2\n3\n"), ["1", "2"])
        self.assertEqual(self.published("--as", "json", input=b"1\n[2]\n"), [1, [2]])

    def test_file(self) -> None:
        """A file is one value."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("a\nb\n")
        self.assertEqual(self.published("--file", path), ["a\nb\n"])
        self.assertEqual(self.published("--file", "-", input=b"a\nb"), ["a\nb"])

    def test_keys(self) -> None:
        """Key and id travel in the header."""
        client = self.client()
        with client.subscribe("t") as subscription:
            ran("pub", "t", "x", "--key", "k", "--message-id", "m")
            delivery = subscription.next(PATIENCE)
            assert delivery is not None
            self.assertEqual((delivery.header["key"], delivery.header["message_id"]), ("k", "m"))

    def test_said(self) -> None:
        """What was done is told on standard error, or as JSON."""
        self.assertIn("published 2 to t in ", ran("pub", "t", "x", "--count", "2").err)
        told = json.loads(ran("pub", "t", "x", "--json").out)
        self.assertEqual((told["published"], told["topic"]), (1, "t"))

    def test_refused(self) -> None:
        """What the broker refuses is told, with exit code 1."""
        found = ran("pub", "$sys/x", "y")
        self.assertEqual(found.code, 1)
        self.assertIn("fleximq: 403 forbidden: ", found.err)

    def test_wildcard(self) -> None:
        """A topic that looks like a pattern is published to with a warning, or refused if the command is strict."""
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TopicWarning)
            found, strict = ran("pub", "t.*", "x", "--quiet"), ran("pub", "t.*", "x", "--strict")
        self.assertEqual([each for each in caught if each.category is TopicWarning], [])  # the command's own is enough
        self.assertEqual((found.code, strict.code), (0, 1))
        self.assertTrue(found.err.startswith("warning: 't.*' is an ordinary topic"), found.err)
        self.assertTrue(strict.err.startswith("fleximq: 't.*' is an ordinary topic"), strict.err)

    def test_url(self) -> None:
        """A URL in place of a topic is refused, for it names a broker."""
        for command in "pub", "sub":
            found = ran(command, "tcp://localhost:7890", "x")
            self.assertEqual(
                (found.code, found.err),
                (1, "fleximq: 'tcp://localhost:7890' is a URL, not a topic; --url names the broker\n"),
            )

    def test_wrong(self) -> None:
        """A wrong value is one sentence and exit code 1, and nothing is published."""
        for words, sentence in (
            (("pub",), "TOPIC"),
            (("pub", "t", "x", "--file", "y"), "not both"),
            (("pub", "t", "--file", "/nowhere"), "/nowhere cannot be read: no such file"),
            (("pub", "t", "{", "--as", "json"), "the value is not JSON"),
            (("pub", "t", "x", "--count", "0"), "--count"),
            (("pub", "t", "x", "--rate", "-1"), "--rate"),
            (("pub", "t", "x", "--url", "http://x"), "scheme"),
            (("pub", "t", "x", "--timeout", "nan"), "--timeout"),
        ):
            found = ran(*words)
            self.assertEqual(found.code, 1, words)
            self.assertIn(sentence, found.err)
            self.assertEqual(found.err.strip().count("\n"), 0, found.err)


class SubTests(CommandCase):
    """``sub``."""

    def test_text(self) -> None:
        """A literal topic's values, a line each."""
        self.assertEqual(self.shown("t", values=["a", {"b": 1}]), ["a", '{"b":1}'])

    def test_topics(self) -> None:
        """With a pattern, with several, or where asked for, the topic stands before each value."""
        self.assertEqual(self.shown("t.*", topic="t.x"), ["t.x: a"])
        self.assertEqual(self.shown("t", "--topic"), ["t: a"])
        self.assertEqual(self.shown("t", "u"), ["t: a"])

    def test_json(self) -> None:
        """All there is to know as JSON."""
        (line,) = self.shown("t", "--json")
        self.assertEqual({**json.loads(line), "publisher": 0}, {"topic": "t", "publisher": 0, "value": "a"})

    def test_raw(self) -> None:
        """Bytes with nothing between them."""
        self.assertEqual(self.shown("t", "--format", "raw", values=["a", "b"]), ["ab"])

    def test_time(self) -> None:
        """It ends when the time is over; with fewer than wanted the exit code is 1."""
        over = "fleximq: the time of --for is over after"
        self.assertEqual(ran("sub", "t", "--for", "0.1"), (0, b"", f"{over} 0 messages\n"))
        self.assertEqual(ran("sub", "t", "u", "--for", "0.1", "--count", "1"), (1, b"", f"{over} 0 of 1 messages\n"))

    def test_interrupted(self) -> None:
        """Control-C ends it without a traceback."""
        process = self.start("sub", "t", "--topic")
        self._publishUntilShown(process, "t")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        self.assertEqual((process.wait(PATIENCE), process.stderr.read()), (130, b""))

    def test_pipe(self) -> None:
        """A reader that goes away ends it without a word."""
        process = self.start("sub", "t", "--topic")
        self._publishUntilShown(process, "t")
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        client = self.client()
        for _ in range(300):
            client.publish("t", "x" * 1000)
            client.flush()
            if process.poll() is not None:
                break
        self.assertEqual((process.wait(PATIENCE), process.stderr.read()), (141, b""))
        process.stdout = None

    def test_broker(self) -> None:
        """Nobody there: one sentence and exit code 1."""
        self.broker.stop()
        found = ran("sub", "t")
        self.assertEqual((found.code, found.out), (1, b""))
        self.assertIn(f"fleximq: cannot connect to {self.url}", found.err)

    def test_wrong(self) -> None:
        """A place in the past that is none."""
        for word in (
            "monday",
            "2026-13-01T00:00",
            "2026-11-26T25:00",
            "1969-12-31T00:00Z",
            "-5",
            "15w",
            "",
            "2026-11-26T19:00+99:00",
        ):
            found = ran("sub", "t", f"--from={word}")
            self.assertIn(f"{word!r} is not a start: give first, last, an offset, a time ago", found.err)
            self.assertEqual(found.code, 1)

    def test_moment(self) -> None:
        """A moment with its zone, or in that of this machine, which is said."""
        said: list[str] = []
        self.patch(sub_, "say", said.append)
        self.addCleanup(time.tzset)
        with patch.dict(os.environ, TZ="Asia/Tokyo"):
            time.tzset()
            for word, milliseconds in (
                ("2026-11-26T19:00Z", 1_795_719_600_000),
                ("2026-11-26T19:00:00.5+01:00", 1_795_716_000_500),
                ("2026-11-26T19:00", 1_795_687_200_000),
                ("2026-11-26", 1_795_618_800_000),
            ):
                self.assertEqual(sub_._start(word), {"time": milliseconds}, word)
        self.assertEqual(said, [
            "fleximq: 2026-11-26T19:00 has no zone; it is taken as 2026-11-26T19:00:00+09:00",
            "fleximq: 2026-11-26 has no zone; it is taken as 2026-11-26T00:00:00+09:00",
        ])  # fmt: skip

    def test_patterns(self) -> None:
        """A wildcard of another broker is refused, a misplaced one gets a warning, or is refused if strict."""
        found = ran("sub", "a.>")
        self.assertEqual((found.code, found.out), (1, b""))
        self.assertIn("fleximq: the wildcards are * and #, not > and +: did you mean 'a.#'?", found.err)
        found, strict = ran("sub", "a.#.b", "--for", "0.01"), ran("sub", "a.#.b", "--strict")
        self.assertEqual((found.code, strict.code), (0, 1))
        self.assertTrue(found.err.startswith("warning: # is a wildcard at the end only"), found.err)
        self.assertTrue(strict.err.startswith("fleximq: # is a wildcard at the end only"), strict.err)

    def test_noJournal(self) -> None:
        """The past of a topic that has none."""
        found = ran("sub", "t", "--from", "first")
        self.assertEqual(found.code, 1)
        self.assertIn("603", found.err)

    def shown(self, *words: str, topic: str = "t", values: object = ("a",)) -> list[str]:
        """Return the lines for these values, published when the command has subscribed."""
        assert isinstance(values, list | tuple)
        process = self.start("sub", *words, "--count", str(len(values)))
        client = self.client()
        while not any(each["subscriptions"] for each in client.ask("/broker/clients")["clients"]):
            self.assertIsNone(process.poll())
        client.publish_many(topic, values)
        client.flush()
        out, err = process.communicate(timeout=PATIENCE)
        self.assertEqual((process.returncode, err), (0, b""))
        return out.decode().splitlines()

    def _publishUntilShown(self, process: object, topic: str) -> None:
        client = self.client()
        while not any(each["subscriptions"] for each in client.ask("/broker/clients")["clients"]):
            pass
        client.publish(topic, "first")
        client.flush()
        self.assertEqual(process.stdout.readline(), b"t: first\n")  # type: ignore[attr-defined]


class PastTests(CommandCase):
    """``sub --from`` with a journal."""

    options = ("--journal", "kept", "--durable", "#")

    def test_from(self) -> None:
        """From the first, from an offset, from the last, from a time on."""
        ran("pub", "t", input=b"a\nb\nc\n")
        for start, wanted in (("first", ["a", "b", "c"]), ("2", ["b", "c"]), ("last", ["c"]), ("1h", ["a", "b", "c"])):
            found = ran("sub", "t", "--from", start, "--count", str(len(wanted)), "--for", "20")
            self.assertEqual((found.code, found.lines), (0, wanted), start)

    def test_moment(self) -> None:
        """``--json`` says when each message was stored, and a moment is a start."""
        ran("pub", "t", input=b"a\n")
        now = datetime.now(UTC)
        (line,) = ran("sub", "t", "--from", "first", "--count", "1", "--json").lines
        stored = datetime.fromisoformat(json.loads(line)["time"])
        self.assertLess(abs(stored - now), timedelta(minutes=5))
        for start, number in ((stored, 1), (stored + timedelta(hours=1), 0)):
            found = ran("sub", "t", "--from", start.isoformat(), "--for", "0.5")
            self.assertEqual((found.code, len(found.lines)), (0, number))
