"""Tokens whose keys a provider publishes."""

import json
from typing import Any

from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import NoCapacity
from fleximq.security.checkers import remote_keys
from fleximq.security.checkers.json_web_tokens import JsonWebTokens, TokenRule
from fleximq.security.checkers.remote_keys import (
    COOLDOWN,
    EXPIRED,
    MAX_AGE,
    MAX_WAITING,
    RELEASED,
    STALE,
    TIMEOUT,
    KeySource,
    RemoteKeys,
)
from fleximq.security.checkers.web_service import Service
from fleximq.security.credentials import Token
from tests.security.checkers.signed import ecKey, jwk, rsaKey, token
from tests.security.checkers.test_web_answer import Response

URL = "https://id.example/keys"
ISSUER = "https://id.example"


class Provider:
    """Notes requests, which the test answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.answers: list[Deferred[Any]] = []

    def request(self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None) -> Deferred[Any]:
        """Note it."""
        self.asked.append(uri.decode())
        self.answers.append(Deferred())
        return self.answers[-1]

    def answer(self, said: Any, code: int = 200) -> None:
        """Answer the latest request with JSON."""
        response = Response(code)
        self.answers[-1].callback(response)
        response.end(json.dumps(said).encode())


def keySet(*ids: int) -> dict[str, Any]:
    """Return a key set with these test keys."""
    return {"keys": [jwk(ecKey(id).public_key(), kid=str(id)) for id in ids]}


def signed(id: int, **claims: Any) -> Token:
    """Return a token signed with a test key."""
    return Token(token(ecKey(id), "ES256", {"kid": str(id)}, **claims))


class RemoteCase(SynchronousTestCase):
    """A checker, and a provider in the hands of the test."""

    source = KeySource(URL)

    def setUp(self) -> None:
        """Make both."""
        self.clock, self.provider, self.complaints = Clock(), Provider(), list[str]()
        log = type("L", (), {"error": lambda _, text, source, reason: self.complaints.append(reason)})()
        self.patch(remote_keys, "_log", log)
        self.checker = self.make()

    def make(self) -> JsonWebTokens:
        """Return a new checker."""
        checker = JsonWebTokens(RemoteKeys(self.source, self.provider), TokenRule())
        checker.useReactor(self.clock)
        return checker

    def ask(self, shown: Token) -> Any:
        """Return the principal, the failure, or a Deferred of it."""
        try:
            return self.checker.requestAvatarId(shown)
        except (UnauthorizedLogin, NoCapacity):
            return Failure()

    def ready(self, *ids: int) -> None:
        """Have these keys fetched."""
        waiting = self.ask(signed(ids[0]))
        self.provider.answer(keySet(*ids))
        self.assertEqual(self.successResultOf(waiting).name, "alice")


class RotationTests(RemoteCase):
    """Keys come and go."""

    def test_firstClientsWaitForOneFetch(self) -> None:
        """The first clients wait for one fetch; then keys are known at once."""
        waiting = [self.ask(signed(0)), self.ask(signed(1)), self.ask(signed(2))]
        self.provider.answer(keySet(0, 1))
        self.assertEqual([self.successResultOf(each).name for each in waiting[:2]], ["alice"] * 2)
        self.failureResultOf(waiting[2], UnauthorizedLogin)
        self.assertEqual((self.ask(signed(1)).name, self.provider.asked), ("alice", [URL]))

    def test_unknownKeyIsLookedForOnceInSomeSeconds(self) -> None:
        """An unknown key is looked for once in some seconds; known ones do not wait for that."""
        self.ready(0)
        self.assertIsInstance(self.ask(signed(1)).value, UnauthorizedLogin)
        self.assertEqual(len(self.provider.asked), 1)
        self.clock.advance(COOLDOWN)
        waiting = self.ask(signed(1))
        self.assertEqual(self.ask(signed(0)).name, "alice")
        self.provider.answer(keySet(0, 1))
        self.assertEqual(self.successResultOf(waiting).name, "alice")

    def test_tokenWithAnotherAlgorithmCausesNoFetch(self) -> None:
        """A token with another algorithm causes no fetch."""
        for shown in (token(), token(rsaKey(), "RS512")):
            self.assertIsInstance(self.ask(Token(shown)).value, UnauthorizedLogin)
        self.assertEqual(self.provider.asked, [])

    def test_keysInUseAreFetchedAgainBeforehand(self) -> None:
        """Keys in use are fetched again beforehand; after a pause their clients wait for it."""
        self.ready(0)
        self.clock.advance(STALE)
        self.assertEqual((self.ask(signed(0)).name, len(self.provider.asked)), ("alice", 2))
        self.provider.answer(keySet(0))
        self.clock.advance(EXPIRED)
        waiting = self.ask(signed(0))
        self.provider.answer(keySet(1))
        self.failureResultOf(waiting, UnauthorizedLogin)

    def test_dead(self) -> None:
        """While the provider does not answer, known keys are good for a day, and others get 503."""
        self.ready(0)
        self.clock.advance(EXPIRED)
        waiting = [self.ask(signed(0)), self.ask(signed(1))]
        self.clock.advance(TIMEOUT)
        for each in waiting:
            self.failureResultOf(each, NoCapacity)
        self.assertEqual((self.ask(signed(0)).name, self.complaints), ("alice", ["no answer in 5 seconds"]))
        self.assertIsInstance(self.ask(signed(1)).value, NoCapacity)
        self.clock.advance(COOLDOWN)
        self.assertEqual((self.ask(signed(0)).name, len(self.provider.asked)), ("alice", 3))
        self.clock.advance(MAX_AGE)
        self.assertIsInstance(self.ask(signed(0)), Deferred)

    def test_anythingButKeySetIsFailureSaidInLog(self) -> None:
        """Anything but a key set is a failure, said in the log."""
        for said, code, reason in (
            (keySet(0), 302, "the answer is 302"),
            ({}, 200, f"{URL} is no JSON Web Key Set"),
            ({"keys": []}, 200, f"{URL} holds no key for RS256 or ES256"),
            (["x" * 70_000], 200, "the answer is too large"),
        ):
            waiting = self.ask(signed(0))
            self.provider.answer(said, code)
            self.failureResultOf(waiting, NoCapacity)
            self.assertEqual(self.complaints.pop(), reason)
            self.clock.advance(COOLDOWN)

    def test_bounds(self) -> None:
        """So many clients wait, no more; one that leaves makes room."""
        waiting = [self.ask(signed(0)) for _ in range(MAX_WAITING)]
        self.assertIsInstance(self.ask(signed(0)).value, NoCapacity)
        for each in waiting[0], waiting[MAX_WAITING // 2]:
            each.addErrback(lambda _: None)
        waiting[0].cancel()
        last = self.ask(signed(0))
        self.provider.answer(keySet(0))
        self.assertEqual(sum(each.called for each in waiting[1:]), RELEASED)
        waiting.pop(MAX_WAITING // 2).cancel()
        self.clock.pump([0] * (MAX_WAITING // RELEASED))
        self.assertEqual(
            [self.successResultOf(each).name for each in [*waiting[1:], last]], ["alice"] * (MAX_WAITING - 1)
        )

    def test_reloadKeepsClientsAlthoughNewCheckerHasNoKeysYetUnlessItAsks(self) -> None:
        """A reload keeps the clients although the new checker has no keys yet, unless it asks elsewhere."""
        self.ready(0)
        who = self.ask(signed(0))
        self.assertEqual(self.make().vouch(who), who)
        self.source = KeySource(URL + "2")
        self.assertIsNone(self.make().vouch(who))


class QueryTests(RemoteCase):
    """The query of a URL, which may hold a key."""

    source = KeySource(URL + "?key=secret")

    def test_queryIsAskedForAndNeverLogged(self) -> None:
        """It is asked for, and never logged, whatever fails."""
        log = type("L", (), {"error": lambda _, text, **more: self.complaints.append(text.format(**more))})()
        self.patch(remote_keys, "_log", log)
        for said, code in (("x", 200), ({"keys": []}, 200), ({}, 500)):
            waiting = self.ask(signed(0))
            self.provider.answer(said, code)
            self.failureResultOf(waiting, NoCapacity)
            self.clock.advance(COOLDOWN)
        self.assertEqual(set(self.provider.asked), {URL + "?key=secret"})
        self.assertEqual(len(self.complaints), 3)
        for line in (*self.complaints, repr(self.source), repr(Service(URL + "?key=secret"))):
            self.assertNotIn("secret", line)
            self.assertIn(URL, line)

    def test_anotherQueryIsAnotherSource(self) -> None:
        """Another query is another source: its principals are not vouched for."""
        self.ready(0)
        principal = self.ask(signed(0))
        self.assertEqual(self.make().vouch(principal), principal)
        self.source = KeySource(URL + "?key=other")
        self.assertIsNone(self.make().vouch(principal))


class DiscoveryTests(RemoteCase):
    """Only the issuer is known."""

    source = KeySource(None, ISSUER)

    def test_found(self) -> None:
        """Its document says where the keys are."""
        waiting = self.ask(signed(0))
        self.provider.answer({"issuer": ISSUER, "jwks_uri": "https://keys.example/k"})
        self.provider.answer(keySet(0))
        self.assertEqual(self.successResultOf(waiting).name, "alice")
        self.assertEqual(self.provider.asked, [ISSUER + "/.well-known/openid-configuration", "https://keys.example/k"])

    def test_wrong(self) -> None:
        """The document of another issuer is refused, as are keys that travel unprotected."""
        for said, reason in (
            ([], "its discovery document is malformed"),
            ({"issuer": ISSUER}, "its discovery document is malformed"),
            ({"issuer": ISSUER, "jwks_uri": "file:///etc/x"},
             "the URL is 'file:///etc/x', but must be like https://auth.example/check"),
            ({"issuer": "https://x", "jwks_uri": URL}, "its discovery document is that of another issuer"),
            ({"issuer": ISSUER, "jwks_uri": "http://id.example/k"},
             "its discovery document names keys at a URL without encryption"),
        ):  # fmt: skip
            waiting = self.ask(signed(0))
            self.provider.answer(said)
            self.failureResultOf(waiting, NoCapacity)
            self.assertEqual((self.complaints.pop(), len(self.provider.asked)), (reason, len(self.provider.answers)))
            self.clock.advance(COOLDOWN)
