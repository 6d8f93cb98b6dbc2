"""A connection of plain HTTP: whose it is, what follows what, and its end."""

from typing import Any

from fleximq.dialects.connection.connection_rate import overRate
from fleximq.dialects.http.routing.origins import Origins
from fleximq.dialects.http.session import AHEAD_BYTES, LEAST_BYTES
from fleximq.errors import AuthenticationFailed, ClientNotFound, Forbidden, NoCapacity, NotKept
from fleximq.limits import Limits
from fleximq.rights import Action
from fleximq.security.credentials import Token
from fleximq.security.permissions import Rights
from fleximq.security.principal import Principal
from tests.dialects.admissions import FakeAdmission
from tests.dialects.conversations import Peer, makeContext
from tests.dialects.http.case import HttpCase, answers, post, request, responses
from tests.slow_journal import SlowJournal

OK: tuple[int, Any] = (200, {})
ALICE, BOB = "Authorization: Bearer alice", "Authorization: Bearer bob"


class HandBackTests(HttpCase):
    """Requests that another protocol answers."""

    def test_a_page_after_publishing_and_back(self) -> None:
        peer = self.join()
        for number in range(1, 4):
            peer.say(post("/topics/demo", number))
            self.assertEqual(answers(peer.heard()), [OK])
            peer.say(request("GET /metrics"))
            self.turn()
            site = self.site.built.pop()
            self.assertEqual(site.received, request("GET /metrics"))
            self.assertEqual(len(self.broker.clients), 0)
            peer = self.join()

    def test_a_pipelined_page_is_handed_over_after_the_answers(self) -> None:
        peer = self.join()
        heard = peer.ask(post("/topics/demo", 1) + request("GET /a") + request("GET /b"))
        self.turn()
        self.assertEqual(answers(heard), [OK])
        self.assertEqual(self.site.built[0].received, request("GET /a") + request("GET /b"))

    def test_an_upgrade_is_for_the_router(self) -> None:
        peer = self.join()
        peer.say(post("/topics/demo", 1))
        peer.heard()
        peer.say(request("GET /ws", b"", "Upgrade: websocket", "Connection: upgrade"))
        self.turn()
        self.assertIn(b"HTTP/1.1 404", peer.heard())
        self.assertTrue(peer.closed)

    def test_a_lost_connection_is_reported_to_the_last_protocol(self) -> None:
        peer = self.join()
        peer.say(post("/topics/demo", 1)).say(request("GET /metrics"))
        self.turn()
        peer.leave()
        self.assertTrue(self.site.built[0].isLost)

    def test_a_refused_head_is_answered_as_at_the_start(self) -> None:
        peer = self.join()
        peer.say(post("/topics/demo", 1))
        peer.heard()
        peer.say(post("/topics/demo", 1, "Origin: https://evil.example"))
        self.turn()
        [(status, error)] = answers(peer.heard())
        self.assertEqual(
            (status, error), (403, {"error": "pages of this origin are not admitted, see --allowed-origin"})
        )
        self.assertTrue(peer.closed)


class IdentityTests(HttpCase):
    """Credentials belong to each request."""

    def setUp(self) -> None:
        """Know two principals."""
        super().setUp()
        known = {Token("alice"): Principal("alice"), Token("bob"): Principal("bob")}
        self.admission = FakeAdmission(known)
        self.open(makeContext(self.clock, admission=self.admission))

    def principals(self) -> list[str | None]:
        return [each.principal for each in self.broker.clients]

    def test_equal_credentials_are_checked_once(self) -> None:
        peer = self.join()
        for number in range(3):
            self.assertEqual(answers(peer.ask(post("/topics/demo", number, ALICE, f"X: {number}"))), [OK])
        self.assertEqual((self.principals(), len(self.admission.asked)), (["alice"], 1))

    def test_other_credentials_are_another_client(self) -> None:
        peer = self.join()
        self.assertEqual(answers(peer.ask(post("/topics/demo", 1, ALICE))), [OK])
        peer.say(post("/topics/demo", 1, BOB))
        self.turn()
        self.assertEqual((answers(peer.heard()), self.principals()), ([OK], ["bob"]))
        peer.say(post("/topics/demo?token=alice", 1))
        self.turn()
        self.assertEqual((answers(peer.heard()), self.principals()), ([OK], ["alice"]))

    def test_they_may_change_any_number_of_times(self) -> None:
        """Each change is a handover, of which none is left behind."""
        peer = self.join()
        for number in range(1200):
            peer.say(post("/topics/demo", 1, (ALICE, BOB)[number % 2]))
            self.turn()
        self.assertEqual(answers(peer.heard()), [OK] * 1200)
        self.assertEqual((len(self.broker.clients), len(self.context.sessions)), (1, 1))
        peer.leave()
        self.assertEqual((len(self.broker.clients), len(self.context.sessions)), (0, 0))

    def test_none_and_wrong_ones_are_refused(self) -> None:
        for first in ((), (post("/topics/demo", 1, ALICE),)):
            for fields in ((), ("Authorization: Bearer carol",)):
                peer = self.join()
                for each in first:
                    peer.ask(each)
                peer.say(post("/topics/demo", 1, *fields))
                self.turn()
                [(status, found, body)] = responses(peer.heard())
                self.assertEqual((status, "www-authenticate" in found, body[:9]), (401, True, b'{"error":'))
                self.assertTrue(peer.closed)

    def test_a_preflight_needs_none(self) -> None:
        [(status, fields, _)] = responses(self.join().ask(request("OPTIONS /topics/demo", b"", "Origin: null")))
        self.assertEqual(status, 403)
        peer = self.join()
        [(status, fields, _)] = responses(peer.ask(request("OPTIONS /topics/demo")))
        self.assertEqual((status, fields["allow"]), (204, "GET, HEAD, POST, OPTIONS"))
        self.assertEqual((len(self.broker.clients), peer.closed), (0, True))

    def test_a_full_broker_says_so(self) -> None:
        self.broker.clients.maximum = 0
        words = str(self.assertRaises(NoCapacity, self.broker.join, "test"))
        [(status, fields, body)] = responses(self.join().ask(post("/topics/demo", 1, ALICE)))
        self.assertEqual((status, fields["retry-after"]), (503, "1"))
        self.assertIn(words.encode(), body)


class ChangedRightsTests(HttpCase):
    """Rights that change while a connection is open."""

    def test_a_body_that_arrives_after_the_loss_of_the_right_is_refused(self) -> None:
        """Also if an earlier request had the same head."""
        whole, peer = post("/topics/demo", "first"), self.join()
        self.assertEqual(answers(peer.ask(whole)), [OK])
        peer.say(whole[:-3])
        [client] = self.broker.clients
        self.broker.changeRights(client, Rights({Action.PUBLISH: ["other"]}))
        [(status, error)] = answers(peer.ask(whole[-3:]))
        self.assertEqual((status, error), (403, {"error": "publishing to 'demo' is not permitted"}))

    def test_an_origin_that_is_not_admitted_any_more(self) -> None:
        """It is refused on connections that have used it, too."""
        origins = Origins(frozenset({"https://shop.example"}))
        self.open(makeContext(self.clock), origins)
        peer = self.join()
        whole = post("/topics/demo", 1, "Origin: https://shop.example")
        self.assertEqual(answers(peer.ask(whole)), [OK])
        origins.added = frozenset()
        peer.say(whole)
        self.turn()
        self.assertEqual([status for status, _ in answers(peer.heard())], [403])


class OrderTests(HttpCase):
    """Answers follow the order of requests, also if one waits for the disk."""

    def setUp(self) -> None:
        """Use a journal that commits when it is told."""
        super().setUp()
        self.journal = SlowJournal()
        self.open(makeContext(self.clock, self.journal, durable=("d",)))

    def test_the_next_request_waits_for_the_commit(self) -> None:
        peer = self.join()
        self.assertEqual(peer.ask(post("/topics/d", 1) + post("/topics/t", 2) + post("/topics/d", 3)), b"")
        self.journal.commit()
        self.turn()
        self.assertEqual(answers(peer.heard()), [(200, {"offset": 1}), OK])
        self.journal.commit()
        self.turn()
        self.assertEqual(answers(peer.heard()), [(200, {"offset": 2})])

    def test_a_refused_commit_is_an_error(self) -> None:
        peer = self.join()
        peer.say(post("/topics/d", 1))
        self.journal.commit("no space")
        self.turn()
        self.assertEqual(answers(peer.heard()), [(503, {"error": "durable publish failed: no space"})])

    def test_a_client_that_sends_on_is_not_read(self) -> None:
        peer = self.join()
        peer.say(post("/topics/d", 1))
        peer.say(post("/topics/t", "x" * 1000) * (AHEAD_BYTES // 1000 + 1))
        self.assertTrue(peer.paused)
        self.journal.commit()
        self.turn()
        self.assertFalse(peer.paused)
        self.assertGreater(len(answers(peer.heard())), 60)

    def test_a_client_that_ends_its_input_is_answered(self) -> None:
        peer = self.join()
        peer.say(post("/topics/d", 1)).endInput()
        self.assertFalse(peer.closed)
        self.journal.commit()
        self.turn()
        self.assertEqual(answers(peer.heard()), [(200, {"offset": 1})])
        self.assertTrue(peer.closed)

    def test_a_broker_that_stops_answers_first(self) -> None:
        peer = self.join()
        peer.say(post("/topics/d", 1))
        for session in tuple(self.context.sessions):
            session.dismiss()
        self.journal.commit()
        self.turn()
        [(status, fields, _)] = responses(peer.heard())
        self.assertEqual((status, fields["connection"]), (200, "close"))
        self.assertTrue(peer.closed)

    def test_a_lost_connection_leaves_nothing(self) -> None:
        peer = self.join()
        peer.say(post("/topics/d", 1) + post("/topics/t", 1)).leave()
        self.journal.commit()
        self.turn()
        self.assertEqual((len(self.broker.clients), len(self.context.sessions)), (0, 0))

    def test_an_expelled_client_is_answered_and_leaves(self) -> None:
        peer = self.join()
        peer.say(post("/topics/d", 1))
        [client] = self.broker.clients
        conversation: Any = client.conversation
        conversation.expel(Forbidden("disconnected by the operator"))
        [(status, fields, body)] = responses(peer.heard())
        self.assertEqual((status, fields["connection"]), (403, "close"))
        self.assertEqual(body, b'{"error":"disconnected by the operator"}\n')
        self.assertTrue(peer.closed)

    def test_errors_of_the_connection_have_the_statuses_of_requests(self) -> None:
        for error, expected in (
            (AuthenticationFailed("the password was changed"), 401),
            (ClientNotFound("gone"), 404),
            (NotKept("full"), 503),
        ):
            peer = self.join()
            peer.say(post("/topics/d", 1))
            client = max(self.broker.clients, key=lambda each: each.id)
            conversation: Any = client.conversation
            conversation.expel(error)
            [(status, fields, _)] = responses(peer.heard())
            self.assertEqual((status, "www-authenticate" in fields, "retry-after" in fields),
                             (expected, expected == 401, expected == 503))  # fmt: skip

    def test_an_idle_client_is_expelled_silently(self) -> None:
        peer = self.join()
        peer.say(post("/topics/t", 1))
        peer.heard()
        [client] = self.broker.clients
        conversation: Any = client.conversation
        conversation.expel(Forbidden("disconnected by the operator"))
        self.assertEqual((peer.heard(), peer.closed), (b"", True))


class TimeTests(HttpCase):
    """Slow and idle clients."""

    def advance(self, seconds: int, call: Any = lambda: None) -> None:
        for _ in range(seconds):
            call()
            self.clock.advance(1)

    def test_a_head_that_drips_is_refused(self) -> None:
        peer = self.join()
        peer.say(post("/topics/demo", 1))
        peer.heard()
        self.advance(25, lambda: peer.say(b"P"))
        self.assertEqual([status for status, *_ in responses(peer.heard())], [408])
        self.assertTrue(peer.closed)

    def test_a_body_that_drips_is_refused(self) -> None:
        peer = self.join()
        peer.say(request("POST /topics/demo", b"x" * 100)[:-100])
        self.advance(25, lambda: peer.say(b"x"))
        self.assertEqual([status for status, *_ in responses(peer.heard())], [408])

    def test_a_slow_body_is_read(self) -> None:
        peer = self.join()
        body = b"x" * (LEAST_BYTES * 5)
        peer.say(request("POST /topics/demo", body)[: -len(body)])
        self.advance(50, lambda: peer.say(body[: LEAST_BYTES // 10 + 1]))
        self.assertEqual(answers(peer.heard())[0], OK)

    def test_an_idle_connection_is_closed(self) -> None:
        peer = self.join()
        peer.say(post("/topics/demo", 1))
        self.advance(89)
        self.assertFalse(peer.closed)
        self.advance(12)
        self.assertTrue(peer.closed)


class SlowReaderTests(HttpCase):
    """A client that sends requests and reads no answers."""

    settings = {"limits": Limits(outboxBytes=1 << 16)}

    def test_it_is_not_read_until_it_has_read(self) -> None:
        peer = self.join()
        peer.say(post("/topics/demo", 1))
        peer.producer.pauseProducing()
        for _ in range(1000):
            if not peer.paused:
                peer.say(post("/topics/demo", 1))
        self.assertTrue(peer.paused)
        self.assertLess(len(peer.heard()), 1 << 17)
        peer.producer.resumeProducing()
        self.turn()
        self.assertFalse(peer.paused)

    def test_it_is_disconnected_in_the_end(self) -> None:
        peer = self.join()
        peer.say(post("/topics/demo", 1))
        peer.producer.pauseProducing()
        while not peer.paused:
            peer.say(post("/topics/demo", 1))
        self.assertFalse(peer.closed)
        self.clock.pump([1] * 200)
        self.assertTrue(peer.closed)


class LimitTests(HttpCase):
    """Sizes and rates."""

    settings = {"limits": Limits(message=2000)}

    def ask(self, *arguments: Any, **more: Any) -> tuple[int, dict[str, str], Peer]:
        peer = self.join()
        [(status, fields, _)] = responses(peer.ask(request(*arguments, **more)))
        return status, fields, peer

    def test_a_body_is_refused_on_its_length(self) -> None:
        status, fields, peer = self.ask("POST /topics/demo", b"", "Content-Length: 2001", length=False)
        self.assertEqual((status, fields["connection"], peer.closed), (413, "close", True))
        status, fields, peer = self.ask("POST /topics/demo", b"", "Content-Length: 9" + "0" * 4000, length=False)
        self.assertEqual(status, 413)

    def test_the_whole_message_counts(self) -> None:
        status, fields, peer = self.ask("POST /topics/demo", b"x" * 1990)
        self.assertEqual((status, peer.closed), (413, False))
        status, _, _ = self.ask("POST /topics/demo", b"x" * 1900)
        self.assertEqual(status, 200)

    def test_too_much_at_once(self) -> None:
        peer = self.join()
        peer.say(post("/topics/demo", 1))
        peer.heard()
        [session] = self.context.sessions

        class Meter:
            """Admits nothing for 2.5 seconds."""

            refuses = True

            def admits(self, messages: int, size: int) -> int:
                return 0

            def wait(self) -> float:
                return 2.5

            def close(self) -> None:
                pass

        class Rate:
            """Refuses."""

            refuses = True
            meter = Meter()

            def charge(self, reading: Any) -> None:
                pass

            def close(self) -> None:
                pass

        session.rate = Rate()
        [(status, fields, body)] = responses(peer.ask(post("/topics/demo", 1)))
        self.assertEqual((status, fields["retry-after"]), (429, "3"))
        self.assertIn(str(overRate()).encode(), body)
        self.assertFalse(peer.closed)

    def test_errors_are_counted(self) -> None:
        self.ask("POST /topics/demo", b"", "Content-Length: x", length=False)
        self.assertEqual(self.broker.counts.events["error: 400"], 1)
