"""Requests to services by HTTP, answered by a FlexiMQ client in a broker in memory."""

from typing import Any

import msgpack

from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.http.operations.requesting import TIMEOUT
from fleximq.limits import Limits
from tests.dialects.conversations import inPieces, makeContext
from tests.dialects.flexi_peer import FlexiPeer
from tests.dialects.http.case import HttpCase, answers, post, request, responses


class RequestTests(HttpCase):
    """POST /request/NAME/path and /request/ID/path."""

    def setUp(self) -> None:
        """Let a service join."""
        super().setUp()
        self.service = FlexiPeer(FlexiFactory(self.context)).join({"client_name": "calc"})
        self.peer = self.join()

    def asked(self) -> Any:
        """Return the one request that the service got."""
        self.turn()
        [found] = [each for each in self.service.messages() if each.kind == "REQ"]
        return found

    def reply(self, asked: Any, payload: bytes, **fields: Any) -> list[tuple[int, Any]]:
        """Answer as the service, and return what the client of HTTP hears."""
        return answers(self.replied(asked, payload, **fields))

    def replied(self, asked: Any, payload: bytes, **fields: Any) -> bytes:
        correlation = {"type": "correlation", "id": asked.header["reqrep"]["id"]}
        routing = [{"client_id": asked.sender, "path": asked.header["routing"][0]["path"]}]
        self.service.send("REP", {"routing": routing, "reqrep": correlation, **fields}, payload)
        self.turn()
        return self.peer.heard()

    def test_a_service_is_asked_by_its_name(self) -> None:
        self.assertEqual(self.peer.ask(post("/request/calc/add/all", [1, 2])), b"")
        asked = self.asked()
        self.assertEqual(asked.header["routing"], [{"client_name": "calc", "path": "/add/all"}])
        self.assertEqual(msgpack.unpackb(asked.payload), [1, 2])
        self.assertEqual(self.reply(asked, msgpack.packb({"sum": 3}), status=200), [(200, {"sum": 3})])

    def test_a_client_is_asked_by_its_id(self) -> None:
        self.peer.say(request(f"POST /request/{self.service.id}/x%2Fy"))
        asked = self.asked()
        self.assertEqual(asked.header["routing"], [{"client_id": self.service.id, "path": "/x/y"}])
        self.assertEqual(asked.payload, msgpack.packb(None))
        self.assertEqual(self.reply(asked, msgpack.packb(None)), [(200, None)])

    def test_several_requests_on_one_connection(self) -> None:
        for number in range(3):
            self.peer.say(post("/request/calc/same", number))
            self.assertEqual(self.reply(self.asked(), msgpack.packb(number)), [(200, number)])
        self.assertEqual(self.broker.openRequests(self.me), 0)

    @property
    def me(self) -> Any:
        return next(each for each in self.broker.clients if each.dialect == "http")

    def test_bytes_are_answered_as_they_are(self) -> None:
        self.peer.say(post("/request/calc/picture"))
        [(status, fields, body)] = responses(self.replied(self.asked(), msgpack.packb(b"\x00\xff")))
        self.assertEqual((status, fields["content-type"], body), (200, "application/octet-stream", b"\x00\xff"))

    def test_messagepack_is_answered_if_accepted(self) -> None:
        self.peer.say(post("/request/calc/a", None, "Accept: application/msgpack"))
        [(_, fields, body)] = responses(self.replied(self.asked(), msgpack.packb({1: b"x"})))
        self.assertEqual((fields["content-type"], msgpack.unpackb(body, strict_map_key=False)), (
            "application/msgpack", {1: b"x"},
        ))  # fmt: skip

    def test_what_json_cannot_show_is_an_error(self) -> None:
        for payload in (b"\xc1", msgpack.packb("x" * (1 << 20))):
            self.peer.say(post("/request/calc/a"))
            [(status, error)] = self.reply(self.asked(), payload)
            self.assertEqual((status, "application/msgpack" in error["error"]), (502, True))

    def test_statuses_of_services(self) -> None:
        for status, code in ((400, 400), (404, 404), (429, 429), (500, 500), (503, 503), (600, 404), (603, 502)):
            self.peer.say(post("/request/calc/a"))
            self.assertEqual(self.reply(self.asked(), msgpack.packb("no"), status=status), [(code, {"error": "no"})])
        self.peer.say(post("/request/calc/a"))
        self.assertEqual(self.reply(self.asked(), msgpack.packb({"error": "map"}), status=400)[0][1], {"error": "map"})
        self.peer.say(post("/request/calc/a"))
        self.assertEqual(self.reply(self.asked(), b"\xc1", status=400)[0][0], 400)

    def test_deep_words_of_an_error(self) -> None:
        self.peer.say(post("/request/calc/x"))
        heard = self.reply(self.asked(), b"\x91" * 100_000 + b"\xc0", status=500)
        self.assertEqual(heard, [(500, {"error": "the service answered with an error"})])

    def test_nobody_there(self) -> None:
        for target in ("nobody", "999", "0", "4294967295", "9999999999"):
            [(status, error)] = answers(self.peer.ask(post(f"/request/{target}/a")))
            self.assertEqual((status, "there is no client" in error["error"]), (404, True), target)
        [(status, error)] = answers(self.peer.ask(post("/request/1/broker/about")))
        self.assertEqual(status, 404)

    def test_a_service_that_leaves(self) -> None:
        self.peer.say(post("/request/calc/a"))
        self.asked()
        self.service.leave()
        self.turn()
        self.assertEqual([status for status, _ in answers(self.peer.heard())], [502])

    def test_no_answer_in_time(self) -> None:
        for path, seconds in (("/request/calc/a", TIMEOUT), ("/request/calc/a?timeout=1.5", 1.5)):
            self.peer.say(post(path))
            asked = self.asked()
            self.clock.advance(seconds - 0.1)
            self.assertEqual(self.peer.heard(), b"")
            self.clock.advance(0.2)
            self.turn()
            self.assertEqual(answers(self.peer.heard()), [(504, {"error": f"no answer within {seconds:g} seconds"})])
            self.assertEqual(self.broker.openRequests(self.me), 0)
            self.assertEqual(self.replied(asked, b"\x01"), b"")

    def test_the_broker_has_a_deadline_too(self) -> None:
        self.broker.requests.timeout = 2.0
        self.peer.say(post("/request/calc/a"))
        self.asked()
        self.clock.advance(2.1)
        self.turn()
        self.assertEqual([status for status, _ in answers(self.peer.heard())], [504])

    def test_wrong_timeouts(self) -> None:
        for text in ("0", "-1", "x", "nan", "inf", "3601", "1e999"):
            [(status, _)] = answers(self.peer.ask(post(f"/request/calc/a?timeout={text}")))
            self.assertEqual(status, 400, text)

    def test_a_client_that_leaves_is_forgotten(self) -> None:
        for name in ("endInput", "leave"):
            self.peer.say(post("/request/calc/a"))
            asked = self.asked()
            getattr(self.peer, name)()
            self.turn()
            self.assertEqual(self.broker.requests.answering(self.service.id), 0)
            self.replied(asked, b"\x01")
            self.service.messages()
            self.peer = self.join()

    def test_a_path_is_needed(self) -> None:
        for path in ("/request/calc", "/request/", "/request//a"):
            self.assertEqual([status for status, _ in answers(self.join().ask(post(path)))], [404], path)

    def test_a_request_to_this_client_is_refused(self) -> None:
        self.peer.say(post("/request/calc/a"))
        asked = self.asked()
        routing = [{"client_id": asked.sender, "path": "/x"}]
        self.service.tell("REQ", {"routing": routing, "reqrep": {"type": "request", "id": "q"}})
        self.clock.advance(1)
        [found] = self.service.messages()
        self.assertEqual((found.kind, found.status, found.header["reqrep"]["id"]), ("REP", 600, "q"))
        self.assertEqual(self.reply(asked, msgpack.packb(1)), [(200, 1)])

    def test_broadcasts_and_notifications_are_ignored(self) -> None:
        self.peer.say(post("/request/calc/a"))
        asked = self.asked()
        self.service.tell("BCAST", {}).tell("NOTIF", {"routing": [{"client_id": asked.sender, "path": "/x"}]})
        self.assertEqual(self.reply(asked, msgpack.packb(1)), [(200, 1)])

    def test_an_answer_with_another_id_is_ignored(self) -> None:
        self.peer.say(post("/request/calc/a"))
        asked = self.asked()
        other = {"type": "correlation", "id": "guessed"}
        self.service.send("REP", {"routing": [{"client_id": asked.sender, "path": "/a"}], "reqrep": other}, b"\x07")
        self.assertEqual(self.peer.heard(), b"")
        self.assertEqual(self.reply(asked, msgpack.packb(1)), [(200, 1)])

    def test_several_values_are_refused(self) -> None:
        heard = self.peer.ask(request("POST /request/calc/a", b"1\n2", "Content-Type: application/x-ndjson"))
        self.assertEqual(answers(heard), [(400, {"error": "a request has a single value"})])


class LargeRequestTests(HttpCase):
    """The limit of a message."""

    def test_refused(self) -> None:
        self.open(makeContext(self.clock, limits=Limits(message=1024)))
        [(status, _)] = answers(self.join().ask(post("/request/calc/a", "x" * 1000)))
        self.assertEqual(status, 413)


globals().update(inPieces(RequestTests))
