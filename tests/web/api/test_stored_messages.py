"""Messages of a topic, read from the journal and decoded."""

from datetime import UTC, datetime
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.security.principal import Admitted
from fleximq.values.message import Content
from fleximq.web.api import stored_messages
from fleximq.web.api.shown_payload import withValue
from tests.web.api.api_case import ApiCase
from tests.web.api.journal_case import JournalCase
from tests.web.asking import Granted


class MessagesTests(JournalCase):
    """``/api/topics/messages``."""

    def read(self, query: str) -> dict[str, Any]:
        """Return the answer for the topic ``t``."""
        answer = self.ask(f"GET /api/topics/messages?topic=t{query}")
        self.assertEqual(answer.code, 200, answer.value)
        value: dict[str, Any] = answer.value
        return value

    def values(self, query: str) -> list[Any]:
        """Return the values of the messages."""
        return [each["value"] for each in self.read(query)["messages"]]

    def fill(self, number: int) -> None:
        """Store numbered messages, each after three of another topic."""
        for each in range(number):
            self.store("other", b"x", b"y", b"z")
            self.store("t", b"%d" % each)

    def test_row(self) -> None:
        """A message is shown with its place, time, publisher, header and payload."""
        self.store("t", b"one")
        [row] = self.read("")["messages"]
        self.assertEqual(
            row,
            {
                "offset": 1, "time": 1_700_000_000_000, "publisher_id": 1000, "publisher": "minimq-1000",
                "dialect": "minimq", "header": {}, "bytes": 3, "content": "text", "payload": "b25l", "form": "text",
                "value": "one",
            },
        )  # fmt: skip

    def test_lastOnes(self) -> None:
        """Without a start the last messages are shown, in order, and earlier ones are found before them."""
        self.fill(30)
        found = self.read("&limit=4")
        self.assertEqual([each["value"] for each in found["messages"]], ["26", "27", "28", "29"])
        self.assertEqual((found["first"], found["last"], found["end"], found["complete"]), (4, 120, 121, False))
        earlier = self.read(f"&limit=4&before={found['before']}")
        self.assertEqual([each["value"] for each in earlier["messages"]], ["22", "23", "24", "25"])

    def test_backToFirst(self) -> None:
        """All are found backwards, each once."""
        self.fill(23)
        before = ""
        seen: list[str] = []
        while True:
            found = self.read(f"&limit=5{before}")
            seen = [each["value"] for each in found["messages"]] + seen
            if found["before"] is None:
                break
            before = f"&before={found['before']}"
        self.assertEqual((seen, found["complete"]), ([str(each) for each in range(23)], True))

    def test_forwards(self) -> None:
        """From an offset on messages are found forwards, each once, and later ones after them."""
        self.fill(7)
        following, seen = 0, []
        for _ in range(3):
            found = self.read(f"&limit=3&from={following}")
            seen += [each["value"] for each in found["messages"]]
            following = found["next"]
        self.assertEqual((seen, found["complete"]), ([str(each) for each in range(7)], True))
        self.store("t", b"new")
        self.assertEqual(self.values(f"&from={following}"), ["new"])

    def test_fromTime(self) -> None:
        """A start may be a time with its zone, or the first message."""
        self.fill(5)
        moment = datetime.fromtimestamp(1_700_000_000 + 4 * 3, UTC).isoformat().replace("+", "%2B")
        self.assertEqual(self.values(f"&from={moment}"), ["3", "4"])
        self.assertEqual(self.values("&from=first"), ["0", "1", "2", "3", "4"])

    def test_contains(self) -> None:
        """Only messages that contain a text are found, in both directions."""
        self.fill(25)
        for query in ("&contains=1", "&contains=1&from=first"):
            found = self.values(f"{query}&limit=100")
            self.assertEqual(found, [str(each) for each in range(25) if "1" in str(each)])
        self.assertEqual(self.values("&contains=1&limit=2"), ["19", "21"])

    def test_boundedRequests(self) -> None:
        """One request reads a bounded part of the journal, and the next ones go on there, in both directions."""
        self.patch(stored_messages, "PORTION", 64)
        self.patch(stored_messages, "READS", 6)
        self.patch(stored_messages, "WINDOW_READS", 3)
        self.fill(40)
        for start, key in (("&from=first", "from"), ("", "before")):
            query, seen, requests = start, set[str](), 0
            while True:
                found = self.read(f"&limit=100&contains=3{query}")
                requests += 1
                self.assertLess(requests, 200)
                seen |= {each["value"] for each in found["messages"]}
                following = found["next" if key == "from" else "before"]
                if found["complete"] or following is None:
                    break
                query = f"&{key}={following}"
            self.assertEqual(seen, {str(each) for each in range(40) if "3" in str(each)})
            self.assertGreater(requests, 2)

    def test_tooFarApart(self) -> None:
        """A request that cannot go back at all is refused, so that no client asks again and again."""
        self.patch(stored_messages, "PORTION", 1)
        self.patch(stored_messages, "READS", 2)
        self.fill(40)
        answer = self.ask("GET /api/topics/messages?topic=t&contains=nowhere")
        self.assertEqual((answer.code, "name an offset with 'from'" in answer.value["error"]), (503, True))

    def test_largePayloads(self) -> None:
        """Large payloads are not shown, and an answer has about 1 MiB: later requests have the rest."""
        self.store("t", b"x" * 70_000)
        [row] = self.read("")["messages"]
        self.assertEqual((row["bytes"], row["payload"], row["form"], row["value"]), (70_000, None, None, None))
        self.store("t", *(b"%d" % (each % 10) * 60_000 for each in range(30)))
        last = self.read("&limit=30")
        before = self.read(f"&limit=30&before={last['before']}")
        offsets = [each["offset"] for part in (before, last) for each in part["messages"]]
        self.assertEqual((len(last["messages"]), offsets), (18, list(range(1, 32))))

    def test_nothing(self) -> None:
        """A topic without messages has none."""
        self.store("other", b"x")
        found = self.read("")
        self.assertEqual((found["messages"], found["before"], found["next"], found["complete"]), ([], None, 2, True))

    def test_refused(self) -> None:
        """Wrong arguments are 400; the right to subscribe is needed, and the broker's own records are never shown."""
        self.store("t", b"x")
        for query in ("from=x", "from=2024-01-01", "from=-1", "before=x", "from=1&before=2", "limit=0", "limit=101"):
            self.assertEqual(self.ask(f"GET /api/topics/messages?topic=t&{query}").code, 400, query)
        self.assertEqual(self.ask("GET /api/topics/messages").code, 400)
        self.assertEqual(self.ask("GET /api/topics/messages?topic=$sys/values").code, 403)
        self.admitted = Admitted(None, Granted("read:api/topics/messages", "publish:t"))
        self.assertEqual(self.ask("GET /api/topics/messages?topic=t").code, 403)

    def test_tooManyAtOnce(self) -> None:
        """A few requests read the journal at once."""
        self.store("t", b"x")
        self.patch(stored_messages, "READERS", 0)
        self.assertEqual(self.ask("GET /api/topics/messages?topic=t").code, 503)


class WithoutJournalTests(ApiCase):
    """A broker without a journal."""

    def test_refused(self) -> None:
        """It has no stored messages."""
        self.assertEqual(self.ask("GET /api/topics/messages?topic=t").code, 503)


class ValueTests(SynchronousTestCase):
    """The forms of payloads."""

    def shown(self, content: Content, payload: bytes) -> tuple[Any, Any]:
        """Return the form and the value of a payload."""
        row = withValue({"content": content.value, "payload": payload})
        return row["form"], row["value"]

    def test_forms(self) -> None:
        """MessagePack, JSON and text are decoded, other bytes are not."""
        for content, payload, form, value in (
            (Content.MESSAGEPACK, msgpack.packb({"a": [1, b"\x00"]}), "messagepack", {"a": [1, "AA=="]}),
            (Content.MESSAGEPACK, b"", "messagepack", None),
            (Content.MESSAGEPACK, b"\xc1", "bytes", None),
            (Content.TEXT, b'{"a": 1}', "json", {"a": 1}),
            (Content.BYTES, b"[1, 2]", "json", [1, 2]),
            (Content.TEXT, b"{a", "text", "{a"),
            (Content.BYTES, "ä".encode(), "text", "ä"),
            (Content.BYTES, b"\xff\xfe", "bytes", None),
            (Content.BYTES, b"", "text", ""),
        ):
            self.assertEqual(self.shown(content, payload), (form, value), payload)

    def test_hostile(self) -> None:
        """Payloads that are made to fail are shown as text or bytes."""
        deep = b"[" * 900 + b"]" * 900
        for content, payload, form in (
            (Content.TEXT, deep, "text"),
            (Content.TEXT, b"[" * 60_000, "text"),
            (Content.TEXT, b'["\\ud800"]', "text"),
            (Content.TEXT, b"[NaN]", "text"),
            (Content.TEXT, b"[1e999]", "text"),
            (Content.MESSAGEPACK, b"\x91" * 900 + b"\xc0", "bytes"),
            (Content.MESSAGEPACK, b"\xdd\xff\xff\xff\xff", "bytes"),
            (Content.MESSAGEPACK, b"\xa1\xff", "bytes"),
            (Content.MESSAGEPACK, msgpack.packb([None] * 60_000), "bytes"),
        ):
            self.assertEqual(self.shown(content, payload)[0], form, payload[:20])
