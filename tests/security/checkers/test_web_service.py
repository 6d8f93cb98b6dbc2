"""Asking a web service who somebody is."""

import json
from typing import Any

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import CancelledError, Deferred, inlineCallbacks
from twisted.internet.error import ConnectionRefusedError
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase, TestCase
from twisted.web.resource import Resource
from twisted.web.server import Site
from zope.interface.verify import verifyObject

from fleximq.errors import NoCapacity
from fleximq.security.authentication.checker_interfaces import (
    ICautious,
    IManyAtOnce,
    INeedsReactor,
    IRemembering,
    IVouching,
)
from fleximq.security.checkers import web_service
from fleximq.security.checkers.web_options import webService
from fleximq.security.checkers.web_service import REFUSED_FOR, Service, WebService
from fleximq.security.credentials import ApiKey, Password, Token
from fleximq.security.principal import Principal
from tests.security.checkers.test_web_answer import Response

URL = "https://auth.example/check"
ALICE = b'{"principal": "alice"}'


class Agent:
    """Takes note of questions, which the test answers."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.answers: list[Deferred[Any]] = []
        self.cancelled: list[Deferred[Any]] = []

    def request(self, method: bytes, uri: bytes, headers: Any = None, bodyProducer: Any = None) -> Deferred[Any]:
        """Take note."""
        written: list[bytes] = []
        bodyProducer.startProducing(type("Consumer", (), {"write": lambda _, each: written.append(each)})())
        self.asked.append((method, uri, dict(headers.getAllRawHeaders()), json.loads(b"".join(written))))
        self.answers.append(Deferred(self.cancelled.append))
        return self.answers[-1]


class WebServiceTests(SynchronousTestCase):
    """A service in the hands of the test."""

    def setUp(self) -> None:
        """Ask it, and complain to nobody but the test."""
        self.agent, self.clock = Agent(), Clock()
        self.now = 1000.0
        self.complaints: list[str] = []
        log = type("L", (), {"error": lambda _, text, url, reason: self.complaints.append(reason)})()
        self.patch(web_service, "_log", log)
        self.checker = WebService(Service(URL, 5.0, 60.0, (("X", "y"),)), self.agent, lambda: self.now)
        self.checker.useReactor(self.clock)

    def ask(self, credentials: Any = Token("t")) -> Deferred[Any]:  # noqa: B008
        """Show credentials."""
        asked: Deferred[Any] = self.checker.requestAvatarId(credentials)
        return asked

    def answer(self, body: bytes = ALICE, code: int = 200) -> None:
        """Answer the latest question."""
        response = Response(code)
        self.agent.answers[-1].callback(response)
        response.end(body)

    def test_serviceProvidesItsInterface(self) -> None:
        """It is what it says."""
        for each in (ICredentialsChecker, IManyAtOnce, IRemembering, IVouching, INeedsReactor, ICautious):
            self.assertTrue(verifyObject(each, self.checker))

    def test_serviceIsAskedByPost(self) -> None:
        """It is asked by POST, in the words of a FlexiMQ JOIN."""
        for credentials, said in (
            (Token("t"), {"type": "token", "token": "t"}),
            (Password("u", "p"), {"type": "basic", "username": "u", "password": "p"}),
            (ApiKey("k"), {"type": "api_key", "api_key": "k"}),
        ):
            self.ask(credentials)
            method, uri, headers, body = self.agent.asked[-1]
            self.assertEqual((method, uri, body), (b"POST", URL.encode(), said))
            self.assertEqual((headers[b"Content-Type"], headers[b"X"]), ([b"application/json"], [b"y"]))

    def test_whoIsNamedIsLetIn(self) -> None:
        """Who is named is let in."""
        asked = self.ask()
        self.answer()
        self.assertEqual(self.successResultOf(asked), Principal("alice", proof=URL))

    def test_401And403AreClearNo(self) -> None:
        """401 and 403 are a clear no."""
        for code in (401, 403):
            asked = self.ask(Token(str(code)))
            self.answer(b"anything", code)
            self.failureResultOf(asked, UnauthorizedLogin)
        self.assertEqual(self.complaints, [])

    def test_noAnswer(self) -> None:
        """Whatever else it does, the door stays shut, and the log says why."""
        for code, body, reason in (
            (500, ALICE, "the answer is 500"),
            (302, ALICE, "the answer is 302"),
            (204, b"", "the answer is 204"),
            (404, b"", "the answer is 404"),
            (200, b"", "the answer is no JSON"),
            (200, b"{}", "the answer names no principal"),
            (200, b"x" * 70_000, "the answer is too large"),
        ):
            asked = self.ask()
            self.answer(body, code)
            self.failureResultOf(asked, NoCapacity)
            self.assertEqual(self.complaints.pop(), reason)
            self.clock.advance(1)
        asked = self.ask()
        self.agent.answers[-1].errback(ConnectionRefusedError())
        self.failureResultOf(asked, NoCapacity)
        self.assertEqual(self.complaints, ["ConnectionRefusedError"])

    def test_fewComplaints(self) -> None:
        """One line in a second is enough."""
        for _ in range(5):
            self.ask().addErrback(lambda _: None)
            self.answer(b"", 500)
        self.assertEqual(len(self.complaints), 1)

    def test_answerAfterDeadlineIsRefused(self) -> None:
        """It has so long to answer, the body included."""
        asked = self.ask()
        self.clock.advance(4.9)
        response = Response()
        self.agent.answers[-1].callback(response)
        self.assertNoResult(asked)
        self.clock.advance(0.1)
        self.failureResultOf(asked, NoCapacity)
        self.assertTrue(response.transport.disconnecting or response.transport.disconnected)
        self.assertEqual(self.complaints, ["no answer in 5 seconds"])

    def test_whoGoesBeforeAnswerTakesQuestionAlong(self) -> None:
        """Who goes before the answer takes the question along."""
        asked = self.ask()
        asked.cancel()
        self.failureResultOf(asked, CancelledError)
        self.assertEqual(self.agent.cancelled, self.agent.answers)
        self.assertEqual((self.complaints, self.clock.getDelayedCalls()), ([], []))

    def test_answerIsRememberedForJustTheseCredentials(self) -> None:
        """What it said is known for a while, for just these credentials."""
        self.ask()
        self.answer()
        self.assertEqual(self.successResultOf(self.ask()).name, "alice")
        self.assertEqual(self.checker.remembered(Token("t")), Principal("alice", proof=URL))
        self.assertIsNone(self.checker.remembered(ApiKey("t")))
        self.assertEqual(len(self.agent.asked), 1)
        self.clock.advance(60)
        self.ask()
        self.assertEqual(len(self.agent.asked), 2)

    def test_noIsCached(self) -> None:
        """So is a no, for a shorter while; what could not be told is not."""
        self.ask().addErrback(lambda _: None)
        self.answer(b"", 401)
        self.failureResultOf(self.ask(), UnauthorizedLogin)
        self.assertIsNone(self.checker.remembered(Token("t")))
        self.clock.advance(REFUSED_FOR)
        self.ask().addErrback(lambda _: None)
        self.assertEqual(len(self.agent.asked), 2)
        self.answer(b"", 500)
        self.ask()
        self.assertEqual(len(self.agent.asked), 3)

    def test_nothingIsKnownForLongerThanItIsGoodAndWhatIsGoodNoMoreIsNo(self) -> None:
        """Nothing is known for longer than it is good, and what is good no more is a no."""
        self.ask()
        self.answer(b'{"principal": "alice", "expires": 1007}')
        self.clock.advance(6.9)
        self.assertIsNotNone(self.checker.remembered(Token("t")))
        self.clock.advance(0.2)
        self.assertIsNone(self.checker.remembered(Token("t")))
        asked = self.ask()
        self.answer(b'{"principal": "alice", "expires": 1000}')
        self.failureResultOf(asked, UnauthorizedLogin)

    def test_serviceVouchesForThoseItLetIn(self) -> None:
        """It vouches for those that the same service let in."""
        self.assertIsNotNone(self.checker.vouch(Principal("alice", proof=URL)))
        self.assertIsNone(self.checker.vouch(Principal("alice", proof="https://other.example/")))


class Door(Resource):
    """A service that knows one token."""

    isLeaf = True

    def render_POST(self, request: Any) -> bytes:
        """Say who it is."""
        if json.loads(request.content.read()) == {"type": "token", "token": "good"}:
            return ALICE
        request.setResponseCode(401)
        return b""


class RealTests(TestCase):
    """A real service on loopback."""

    @inlineCallbacks
    def test_realServiceAnswersYesAndNo(self) -> Any:
        """It is asked, and answers yes and no."""
        from twisted.internet import reactor

        site: Any = Site(Door())
        port: Any = reactor.listenTCP(0, site, interface="127.0.0.1")
        self.addCleanup(port.stopListening)
        checker = webService(f"http://127.0.0.1:{port.getHost().port}/check,timeout=60")
        checker.useReactor(reactor)
        found = yield checker.requestAvatarId(Token("good"))
        self.assertEqual(found.name, "alice")
        yield self.assertFailure(checker.requestAvatarId(Token("bad")), UnauthorizedLogin)
