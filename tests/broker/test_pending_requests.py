"""Requests that wait for their answer."""

from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.deadlines import Deadlines
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.pending_requests import PendingRequests
from fleximq.errors import TooManyRequests
from tests.broker.parts import Friend


class OpenRequestsTests(SynchronousTestCase):
    """Alice and Bob ask each other; ten seconds, three open requests each."""

    def setUp(self) -> None:
        """Make them."""
        self.clock = Clock()
        self.requests = PendingRequests(Deadlines(self.clock), 10.0, 3)
        self.friends = {name: Friend() for name in ("alice", "bob")}
        self.alice, self.bob = (
            ConnectedClient(1000 + place, "fleximq", name, peer=self.friends[name])
            for place, name in enumerate(self.friends)
        )

    def failures(self, name: str = "alice") -> list[tuple[str, str, int]]:
        """Return the failures that somebody was told of, and forget them."""
        found, self.friends[name].failures = self.friends[name].failures, []
        return found

    def ask(self, *ids: str) -> None:
        """Let Alice ask Bob."""
        for id in ids:
            self.requests.open(self.alice, self.bob, id, f"/{id}")

    def test_answered(self) -> None:
        """An answer closes its request; a second one, and one nobody asked for, does not."""
        self.ask("r")
        self.assertEqual(self.requests.openRequests(self.alice), 1)
        self.assertEqual([self.requests.close(self.alice, self.bob, "r") for _ in range(2)], [True, False])
        self.assertFalse(self.requests.close(self.bob, self.alice, "r"))
        self.assertFalse(self.requests.close(self.alice, self.bob, "never"))
        self.assertEqual(self.requests.openRequests(self.alice), 0)
        self.clock.advance(100)
        self.assertEqual(self.failures(), [])

    def test_responderLeaves(self) -> None:
        """502 for each open one, with id and path, and word that it is done."""
        self.ask("r", "s")
        self.requests.close(self.alice, self.bob, "r")
        self.requests.leave(self.bob)
        self.assertEqual(self.failures(), [("s", "/s", 502)])
        self.assertEqual((self.requests.openRequests(self.alice), self.friends["alice"].done), (0, 1))

    def test_forgotten(self) -> None:
        """A request that its client forgets is over, without word; others stay open."""
        self.ask("r", "s")
        self.requests.forget(self.alice, "r")
        self.requests.forget(self.alice, "never")
        self.requests.forget(self.bob, "s")
        self.assertEqual((self.requests.openRequests(self.alice), self.requests.answering(self.bob.id)), (1, 1))
        self.clock.advance(100)
        self.assertEqual(self.failures(), [("s", "/s", 504)])

    def test_requesterLeaves(self) -> None:
        """Nobody is told of what the departed had asked."""
        self.ask("r", "s")
        self.requests.leave(self.alice)
        self.requests.leave(self.bob)
        self.clock.advance(100)
        self.assertEqual(self.failures() + self.failures("bob"), [])

    def test_deadline(self) -> None:
        """504 when the time is over, not before; later answers find nothing."""
        self.ask("r")
        self.clock.advance(5)
        self.ask("s")
        self.clock.advance(4.9)
        self.assertEqual(self.failures(), [])
        self.clock.advance(0.2)
        self.assertEqual(self.failures(), [("r", "/r", 504)])
        self.clock.advance(5)
        self.assertEqual(self.failures(), [("s", "/s", 504)])
        self.assertFalse(self.requests.close(self.alice, self.bob, "r"))
        self.assertEqual(self.friends["alice"].done, 2)

    def test_noDeadline(self) -> None:
        """With 0 for the time it never comes."""
        self.requests = PendingRequests(Deadlines(self.clock), 0.0, 3)
        self.ask("r")
        self.clock.advance(1e6)
        self.assertEqual((self.failures(), self.requests.openRequests(self.alice)), ([], 1))

    def test_sameIdAgain(self) -> None:
        """The same id to the same responder takes the earlier one's place: one answer, a new deadline."""
        self.ask("r", "s", "t")
        self.clock.advance(6)
        self.ask("r")
        self.assertEqual(self.requests.openRequests(self.alice), 3)
        self.clock.advance(5)
        self.assertEqual([id for id, _, _ in self.failures()], ["s", "t"])
        self.clock.advance(5.1)
        self.assertEqual([id for id, _, _ in self.failures()], ["r"])

    def test_sameIdElsewhere(self) -> None:
        """The same id to another responder, or from another requester, is another request."""
        self.ask("r")
        self.requests.open(self.alice, self.alice, "r", "/own")
        self.requests.open(self.bob, self.alice, "r", "/back")
        self.requests.leave(self.bob)
        self.assertEqual((self.failures(), self.failures("bob")), ([("r", "/r", 502)], []))
        self.assertEqual(self.requests.openRequests(self.alice), 1)

    def test_bound(self) -> None:
        """Three are open at once; a fourth is refused and leaves no trace; an answer makes room."""
        self.ask("a", "b", "c")
        self.assertRaises(TooManyRequests, self.ask, "d")
        self.assertFalse(self.requests.close(self.alice, self.bob, "d"))
        self.requests.open(self.bob, self.alice, "a", "")
        self.requests.close(self.alice, self.bob, "b")
        self.ask("d")
        self.assertEqual(self.requests.openRequests(self.alice), 3)

    def test_long(self) -> None:
        """A request with a long id or path counts more than once, until it is answered or its requester leaves."""
        self.requests.open(self.alice, self.bob, "x" * 1000, "/" * 24)
        self.ask("a")
        self.assertRaises(TooManyRequests, self.ask, "b")
        self.requests.close(self.alice, self.bob, "x" * 1000)
        self.ask("b", "c")
        self.requests.leave(self.alice)
        self.assertRaises(TooManyRequests, self.requests.open, self.alice, self.bob, "x", "/" * 4000)
        self.requests.open(self.alice, self.bob, "x", "/" * 3000)

    def test_longAgain(self) -> None:
        """A request that takes its own earlier one's place is counted by its new path."""
        self.requests.open(self.alice, self.bob, "x", "/")
        self.assertRaises(TooManyRequests, self.requests.open, self.alice, self.bob, "x", "/" * 4000)

    @settings(deadline=None)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["open", "close", "leave", "wait"]),
                st.integers(0, 2),
                st.integers(0, 2),
                st.sampled_from("xy"),
            )
        )
    )
    def test_everyRequestEndsOnce(self, steps: list[tuple[str, int, int, str]]) -> None:
        """Whatever happens in which order: what is open is what was opened and did not end, and nothing leaks."""
        clock = Clock()
        requests = PendingRequests(Deadlines(clock), 10.0, 1000)
        friends = [Friend() for _ in range(3)]
        clients = [ConnectedClient(1000 + place, "fleximq", "", peer=friend) for place, friend in enumerate(friends)]
        open_: dict[tuple[int, int, str], float] = {}
        failed = [0, 0, 0]
        for what, one, other, id in steps:
            if what == "open":
                requests.open(clients[one], clients[other], id, "")
                open_[one, other, id] = clock.seconds() + 10
            elif what == "close":
                self.assertEqual(requests.close(clients[one], clients[other], id), (one, other, id) in open_)
                open_.pop((one, other, id), None)
            elif what == "leave":
                requests.leave(clients[one])
                for key in [key for key in open_ if one in key[:2]]:
                    failed[key[0]] += key[0] != one
                    del open_[key]
            else:
                clock.advance(4)
                for key in [key for key, end in open_.items() if end <= clock.seconds()]:
                    failed[key[0]] += 1
                    del open_[key]
            self.assertEqual(
                [requests.openRequests(client) for client in clients],
                [sum(key[0] == n for key in open_) for n in range(3)],
            )
        self.assertEqual([len(friend.failures) for friend in friends], failed)
        for client in clients:
            requests.leave(client)
        self.assertEqual((requests._asked, requests._asking), ({}, {}))
