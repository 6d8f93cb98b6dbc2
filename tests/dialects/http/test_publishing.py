"""Publishing to topics by HTTP, with a FlexiMQ subscriber at the other side."""

from typing import Any

import msgpack

from fleximq.broker.envelope import ConnectedClient
from fleximq.values.message import Message
from tests.dialects.conversations import inPieces
from tests.dialects.http.case import HttpCase, answers, post, request, responses


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


globals().update(inPieces(PublishingTests))
