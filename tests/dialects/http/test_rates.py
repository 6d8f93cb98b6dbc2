"""Clients of plain HTTP that are kept to their rates, and the memory that they take before they are admitted."""

from dataclasses import replace

from fleximq.config.rate_options import Rate
from fleximq.security.credentials import Token
from fleximq.security.principal import Principal
from fleximq.security.rates.client_rates import Allowance, RateRules, Rates
from fleximq.values.unadmitted_budget import FREE_BYTES, UnadmittedBudget
from tests.dialects.admissions import FakeAdmission
from tests.dialects.conversations import Peer, makeContext
from tests.dialects.http.case import HttpCase, answers, post, request, responses

POST = post("/topics/t", 1)


class RateTests(HttpCase):
    """Ten a second, ten at once."""

    def limited(self, *client: Rate | None, refuses: bool = False) -> Peer:
        """Return a connection with these rates: of messages and bytes."""
        rates = Rates(RateRules(Allowance(*client), refuses=refuses), self.clock.seconds)
        self.open(replace(makeContext(self.clock), rates=rates))
        return self.join()

    def test_a_client_over_its_rate_is_not_read(self) -> None:
        peer = self.limited(Rate(10, 10))
        for _ in range(10):
            peer.say(POST)
        self.assertFalse(peer.paused)
        peer.say(POST)
        self.assertTrue(peer.paused)
        self.clock.advance(0.11)
        self.assertFalse(peer.paused)
        self.assertEqual([status for status, _ in answers(peer.heard())], [200] * 11)

    def test_each_line_is_a_message(self) -> None:
        peer = self.limited(Rate(10, 10))
        peer.say(request("POST /topics/t", b"1\n" * 11, "Content-Type: application/x-ndjson"))
        self.assertTrue(peer.paused)

    def test_bytes_count_as_they_are_read(self) -> None:
        peer = self.limited(None, Rate(1000, 1000))
        peer.say(request("POST /topics/t", b"x" * 5000)[:3000])
        self.assertTrue(peer.paused)

    def test_messages_over_it_may_be_refused(self) -> None:
        peer = self.limited(Rate(10, 10), refuses=True)
        found = responses(peer.ask(POST * 12))
        self.assertEqual([status for status, _, _ in found], [200] * 10 + [429] * 2)
        self.assertEqual(found[-1][1]["retry-after"], "1")
        self.clock.advance(0.2)
        self.assertEqual([status for status, _, _ in responses(peer.ask(POST))], [200])

    def test_a_run_over_it_is_refused_as_a_whole(self) -> None:
        peer = self.limited(Rate(10, 10), refuses=True)
        heard = peer.ask(request("POST /topics/t", b"1\n" * 11, "Content-Type: application/x-ndjson"))
        self.assertEqual([status for status, _ in answers(heard)], [429])


class UnadmittedTests(HttpCase):
    """Requests whose credentials are being checked."""

    def test_what_they_send_is_charged(self) -> None:
        admission = FakeAdmission({Token("alice"): Principal("alice")}, later=True)
        context = makeContext(self.clock, admission=admission)
        context.unadmitted = budget = UnadmittedBudget(2 * (20_000 - FREE_BYTES))
        self.open(context)
        data = request("POST /topics/t", b"x" * 20_000, "Authorization: Bearer alice")[:20_000]
        peers = [self.join().say(data) for _ in range(3)]
        self.assertEqual([peer.paused for peer in peers[:2]], [True, True])
        self.assertEqual([status for status, *_ in responses(peers[2].heard())], [503])
        for _ in range(2):
            admission.decide()
        self.assertEqual((budget.used, len(self.broker.clients)), (0, 2))
        rest = request("POST /topics/t", b"x" * 20_000, "Authorization: Bearer alice")[20_000:]
        self.assertEqual([answers(peer.ask(rest)) for peer in peers[:2]], [[(200, {})]] * 2)
