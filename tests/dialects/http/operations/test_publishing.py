"""Publishing to topics by HTTP, with a FlexiMQ subscriber at the other side."""

from typing import Any

import msgpack

from fleximq.broker.envelope import ConnectedClient
from fleximq.values.message import Message
from tests.dialects.conversations import inPieces, makeContext
from tests.dialects.http.case import HttpCase, answers, post, request, responses
from tests.slow_journal import SlowJournal


class Subscriber:
    """Keeps the messages that it gets."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.form = self

    def render(self, envelope: Any, body: Any, count: int) -> Any:
        return envelope.source.messages(body)

    def deliver(self, rendered: Any, count: int) -> None:
        self.messages += rendered

    @property
    def values(self) -> list[Any]:
        """The values of the messages."""
        return [msgpack.unpackb(each.payload) for each in self.messages]


class PublishingTests(HttpCase):
    """POST /topics/TOPIC."""

    def subscribe(self, topic: str) -> Subscriber:
        subscriber = Subscriber()
        client: ConnectedClient = self.broker.join("test")
        sub: Any = subscriber
        self.broker.subscribe(client, sub, topic)
        return subscriber

    def test_json_is_published_as_its_value(self) -> None:
        found = self.subscribe("demo")
        self.assertEqual(answers(self.join().ask(post("/topics/demo", {"a": [1, None, "ä"]}))), [(200, {})])
        self.assertEqual(found.values, [{"a": [1, None, "ä"]}])

    def test_a_connection_serves_one_request_after_the_other(self) -> None:
        found, peer = self.subscribe("demo"), self.join()
        heard = peer.ask(post("/topics/demo", 1) + post("/topics/demo", 2) + post("/topics/demo", 3))
        self.assertEqual(answers(heard), [(200, {})] * 3)
        self.assertEqual(answers(peer.ask(post("/topics/demo", 4))), [(200, {})])
        self.assertEqual(found.values, [1, 2, 3, 4])
        self.assertFalse(peer.closed)

    def test_the_connection_is_a_client_of_this_dialect(self) -> None:
        self.join().say(post("/topics/demo", 1))
        self.assertEqual([each.dialect for each in self.broker.clients], ["http"])

    def test_other_content_types_are_text_and_bytes(self) -> None:
        found, peer = self.subscribe("demo"), self.join()
        for kind, body in (
            ("text/plain", "grün".encode()),
            ("application/octet-stream", b"\x00\xff"),
            ("application/x-www-form-urlencoded", b"hello"),
            ("application/msgpack", msgpack.packb({"b": 2})),
        ):
            peer.say(request("POST /topics/demo", body, f"Content-Type: {kind}"))
        self.assertEqual(found.values, ["grün", b"\x00\xff", b"hello", {"b": 2}])

    def test_each_line_is_a_message(self) -> None:
        found = self.subscribe("demo")
        body = b'1\n\n{"x": 2}\r\n"three"'
        heard = self.join().ask(request("POST /topics/demo", body, "Content-Type: application/x-ndjson"))
        self.assertEqual(answers(heard), [(200, {})])
        self.assertEqual(found.values, [1, {"x": 2}, "three"])

    def test_nothing_is_published_if_a_line_is_wrong(self) -> None:
        found = self.subscribe("demo")
        heard = self.join().ask(request("POST /topics/demo", b"1\n{2\n3", "Content-Type: application/x-ndjson"))
        self.assertEqual(answers(heard), [(400, {"error": "line 2: the value is not JSON"})])
        self.assertEqual(found.values, [])

    def test_a_chunked_body_is_one_message(self) -> None:
        found = self.subscribe("demo")
        chunks = b"3\r\nhel\r\n2;more=1\r\nlo\r\n0\r\n\r\n"
        fields = "Transfer-Encoding: chunked", "Content-Type: text/plain"
        heard = self.join().ask(request("POST /topics/demo", chunks, *fields, length=False))
        self.assertEqual((answers(heard), found.values), ([(200, {})], ["hello"]))

    def test_a_client_that_expects_it_is_asked_for_the_body(self) -> None:
        peer = self.join()
        head = request("POST /topics/demo", b"hello", "Expect: 100-continue")[:-5]
        self.assertEqual(peer.ask(head), b"HTTP/1.1 100 Continue\r\n\r\n")
        self.assertEqual(answers(peer.ask(b"hello")), [(200, {})])

    def test_another_path_goes_to_the_web_site_on_the_same_connection(self) -> None:
        peer = self.join()
        peer.ask(post("/topics/demo", 1))
        peer.say(request("GET /healthz"))
        self.turn()
        self.assertEqual(self.site.built[0].received, request("GET /healthz"))
        self.assertEqual(len(self.broker.clients), 0)
        self.assertEqual(peer.heard(), b"")

    def test_an_error_of_the_head_closes(self) -> None:
        peer = self.join()
        [(status, fields, _)] = responses(peer.ask(request("DELETE /topics/demo")))
        self.assertEqual((status, fields["allow"], fields["connection"]), (405, "GET, HEAD, POST, OPTIONS", "close"))
        self.assertTrue(peer.closed)


class ParameterTests(HttpCase):
    """Arguments of the query and of header fields."""

    settings = {"durable": ("d",)}

    def setUp(self) -> None:
        """Use a journal that commits when it is told."""
        super().setUp()
        self.journal = SlowJournal()
        self.open(makeContext(self.clock, self.journal, **self.settings))
        self.peer = self.join()

    def stored(self, path: str, *fields: str) -> tuple[int, Any, Any]:
        """Publish, commit, and return the answer and the header of what was stored."""
        before = len(self.journal.kept)
        self.peer.say(post(path, "x", *fields))
        self.journal.commit()
        self.turn()
        [(status, value)] = answers(self.peer.heard())
        kept = self.journal.kept[before:]
        return status, value, [msgpack.unpackb(each.run.headers) for each in kept]

    def test_they_are_header_keys_of_fleximq(self) -> None:
        for path, fields in (
            ("/topics/d?message_id=m%201&key=k+2&priority=9&expires=1.5", ()),
            (
                "/topics/d",
                ("FlexiMQ-Message-Id: m 2", "fleximq-KEY: k 2", "FlexiMQ-Priority: 9", "FlexiMQ-Expires: 1.5"),
            ),
        ):
            status, value, [found] = self.stored(path, *fields)
            self.assertEqual((status, list(value)), (200, ["offset"]))
            self.assertEqual((found["key"], found["priority"], found["expires_in"]), ("k 2", 9, 1500))

    def test_a_repeated_id_is_stored_once(self) -> None:
        self.assertEqual(self.stored("/topics/d?message_id=1")[:2], (200, {"offset": 1}))
        self.assertEqual(self.stored("/topics/d?message_id=1"), (200, {}, []))
        self.assertEqual(self.stored("/topics/d?message_id=2")[:2], (200, {"offset": 2}))

    def test_a_message_for_later(self) -> None:
        subscriber = Subscriber()
        sub: Any = subscriber
        self.broker.subscribe(self.broker.join("test"), sub, "t")
        for path in (
            "/topics/t?delay=1.5",
            "/topics/t?at=1970-01-01T00:00:01.5Z",
            "/topics/t?at=1970-01-01T01:00:01.5%2B01:00",
        ):
            status, value, *_ = self.stored(path)
            self.assertEqual((status, [*value]), (200, ["schedules"]), path)
        self.clock.advance(1.4)
        self.assertEqual(subscriber.values, [])
        self.clock.advance(0.2)
        self.assertEqual(subscriber.values, ["x", "x", "x"])

    def test_wrong_ones_are_refused(self) -> None:
        for query in (
            "delay=-1", "delay=x", "delay=nan", "delay=inf", "delay=1e999", "delay=1e15", "expires=0", "expires=0.0001",
            "priority=10", "priority=-1", "priority=1.0", "priority=%D9%A3", "at=now", "at=2030-01-01",
            "at=2030-01-01T00:00", "delay=1&at=2030-01-01T00:00Z", "unknown=1", "delay=1&delay=1",
            "%ff=1", "key=%ff", "message_id=%",
        ):  # fmt: skip
            [(status, error)] = answers(self.join().ask(post(f"/topics/t?{query}", 1)))
            self.assertEqual((status, list(error)), (400, ["error"]), query)
        twice = post("/topics/t?key=1", 1, "FlexiMQ-Key: 1")
        self.assertEqual([status for status, _ in answers(self.join().ask(twice))], [400])

    def test_an_empty_one_is_none(self) -> None:
        self.assertEqual(answers(self.join().ask(post("/topics/t?key=&delay=&", 1))), [(200, {})])

    def test_an_id_is_for_one_message(self) -> None:
        data = request("POST /topics/t?message_id=1", b"1\n2", "Content-Type: application/x-ndjson")
        [(status, error)] = answers(self.peer.ask(data))
        self.assertEqual((status, error), (400, {"error": "message_id is for a single message"}))

    def test_topics_of_the_broker_are_refused(self) -> None:
        for name in ("$sys/x", "$dead/x"):
            self.assertEqual([status for status, _ in answers(self.join().ask(post(f"/topics/{name}", 1)))], [403])
        long = "a" * 1025
        self.assertEqual([status for status, _ in answers(self.join().ask(post(f"/topics/{long}", 1)))], [400])


class ValueTests(HttpCase):
    """Values that JSON, or the broker, does not have."""

    def test_they_are_refused(self) -> None:
        for body in (
            b"", b" ", b"{", b"[1,]", b"NaN", b"Infinity", b"-Infinity", b"01", b"'a'", b"\xff", b'"\xff"',
            b'"\\ud800"', b"18446744073709551616", b"-9223372036854775809", b"1" + b"0" * 5000, b"1e999", b"1 2",
            b"\xef\xbb\xbf1",
            b"[" * 257 + b"]" * 257, b'{"a":' * 300 + b"1" + b"}" * 300, b"[" * 100_000, b'"a\nb"', b'"\x00"',
        ):  # fmt: skip
            heard = self.join().ask(request("POST /topics/t", body, "Content-Type: application/json"))
            [(status, error)] = answers(heard)
            self.assertEqual((status, list(error)), (400, ["error"]), body[:20])

    def test_the_largest_are_taken(self) -> None:
        peer = self.join()
        for body in (b"18446744073709551615", b"-9223372036854775808", b"[" * 256 + b"]" * 256, b'"\\u0000"', b"1e308"):
            heard = peer.ask(request("POST /topics/t", body, "Content-Type: application/json; charset=UTF-8"))
            self.assertEqual(answers(heard), [(200, {})], body[:20])

    def test_encodings(self) -> None:
        for fields, status in (
            (("Content-Type: text/plain; charset=utf-16",), 415),
            (("Content-Type: application/json; charset=iso-8859-1",), 415),
            (("Content-Type: text/plain", "Content-Encoding: gzip"), 415),
            (("Content-Type: text/plain", "Content-Encoding: identity"), 200),
            (('Content-Type: text/csv; charset="UTF-8"',), 200),
            (("Content-Type: image/png; charset=utf-16",), 200),
        ):
            heard = self.join().ask(request("POST /topics/t", b"x", *fields))
            self.assertEqual([found for found, _ in answers(heard)], [status], fields)
        heard = self.join().ask(request("POST /topics/t", b"\xff", "Content-Type: text/plain"))
        self.assertEqual(answers(heard), [(400, {"error": "the text is not UTF-8"})])

    def test_json_has_a_lower_limit(self) -> None:
        for kind, status in (("application/json", 413), ("application/x-ndjson", 413), ("application/msgpack", 200)):
            heard = self.join().ask(request("POST /topics/t", b'"' + b"x" * (1 << 20) + b'"', f"Content-Type: {kind}"))
            self.assertEqual([found for found, _ in answers(heard)], [status], kind)

    def test_only_empty_lines_are_no_message(self) -> None:
        heard = self.join().ask(request("POST /topics/t", b"\n \r\n\n", "Content-Type: application/x-ndjson"))
        self.assertEqual(answers(heard), [(200, {})])


class FramingTests(HttpCase):
    """Requests whose end another reader might see elsewhere, of which a part would be taken for another request."""

    def test_they_are_refused_and_the_connection_is_closed(self) -> None:
        chunked = "Transfer-Encoding: chunked"
        for fields, status in (
            (("Content-Length: 1", chunked), 400),
            (("Content-Length: 1", "Content-Length: 1"), 400),
            (("Content-Length: 1", "Content-Length: 2"), 400),
            (("Content-Length: 1, 1",), 400),
            (("Content-Length: +1",), 400),
            (("Content-Length: 0x1",), 400),
            (("Content-Length: 1_0",), 400),
            (("Content-Length: \xb2",), 400),
            (("Content-Length:",), 400),
            (("Content-Length : 1",), 400),
            (("Content-Length\t: 1",), 400),
            ((" Content-Length: 1",), 400),
            (("X: y", " folded"), 400),
            (("X: y\nContent-Length: 1",), 400),
            (("X: y\rContent-Length: 1",), 400),
            (("X: \x00",), 400),
            ((chunked, chunked), 400),
            (("Transfer-Encoding: gzip, chunked",), 501),
            (("Transfer-Encoding: chunked, identity",), 501),
            (("Transfer-Encoding: \x0bchunked",), 400),
            (("Transfer-Encoding: xchunked",), 501),
            (("Expect: 200-maybe",), 417),
            (("Host: a", "Host: b"), 400),
        ):
            peer = self.join()
            data = request("POST /topics/t", b"", *fields, length=False) + b"G"
            found = responses(peer.say(data).heard())
            self.assertEqual([each[0] for each in found], [status], fields)
            self.assertEqual((found[0][1]["connection"], peer.closed), ("close", True), fields)

    def test_an_older_client_cannot_send_chunks(self) -> None:
        data = request("POST /topics/t", b"", "Transfer-Encoding: chunked", length=False).replace(
            b"HTTP/1.1", b"HTTP/1.0"
        )
        self.assertEqual([each[0] for each in responses(self.join().ask(data))], [400])

    def test_an_older_client_keeps_its_connection_if_it_asks_for_it(self) -> None:
        for fields, word in (((), "close"), (("Connection: keep-alive",), "keep-alive")):
            peer = self.join()
            data = post("/topics/t", 1, *fields).replace(b"HTTP/1.1", b"HTTP/1.0")
            [(status, found, _)] = responses(peer.ask(data))
            self.assertEqual((status, found["connection"], peer.closed), (200, word, word == "close"))

    def test_a_client_may_close(self) -> None:
        peer = self.join()
        heard = peer.ask(post("/topics/t", 1, "Connection: Close") + post("/topics/t", 2))
        self.assertEqual([(status, fields["connection"]) for status, fields, _ in responses(heard)], [(200, "close")])
        self.assertTrue(peer.closed)

    def test_head_has_no_body(self) -> None:
        heard = self.join().ask(request("HEAD /topics/%ff"))
        self.assertTrue(heard.endswith(b"\r\n\r\n"))


globals().update(inPieces(PublishingTests, ParameterTests, FramingTests))
