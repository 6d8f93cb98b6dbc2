"""What a web service answers."""

from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.error import ConnectionLost
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure
from twisted.trial.unittest import SynchronousTestCase
from twisted.web.client import ResponseDone

from fleximq.security.checkers.bounded_agent import MAX_ANSWER_BYTES
from fleximq.security.checkers.claims import WrongClaim
from fleximq.security.checkers.web_service import body, principalOf
from fleximq.security.principal import Principal


class Response:
    """An answer whose body the test delivers."""

    def __init__(self, code: int = 200) -> None:
        self.code = code

    def deliverBody(self, protocol: Any) -> None:
        """Take note of where to."""
        self.protocol = protocol
        self.transport = StringTransport()
        protocol.makeConnection(self.transport)

    def end(self, *pieces: bytes, reason: Exception | None = None) -> None:
        """Deliver a body, and how it ends."""
        for piece in pieces:
            self.protocol.dataReceived(piece)
        self.protocol.connectionLost(Failure(reason or ResponseDone()))


class BodyTests(SynchronousTestCase):
    """Collecting a body."""

    def setUp(self) -> None:
        """Wait for one."""
        self.response = Response()
        self.body: Deferred[bytes] = body(self.response)

    def test_whole(self) -> None:
        """Its pieces are put together, up to the limit."""
        self.response.end(b"a", b"b" * (MAX_ANSWER_BYTES - 1))
        self.assertEqual(len(self.successResultOf(self.body)), MAX_ANSWER_BYTES)

    def test_tooLarge(self) -> None:
        """More is not waited for."""
        self.response.protocol.dataReceived(b"a" * (MAX_ANSWER_BYTES + 1))
        self.failureResultOf(self.body, WrongClaim)
        self.assertTrue(self.response.transport.disconnecting or self.response.transport.disconnected)
        self.response.end(b"more")

    def test_bodyThatIsCutOffIsNone(self) -> None:
        """A body that is cut off is none."""
        self.response.end(b'{"principal": "a"}', reason=ConnectionLost())
        self.failureResultOf(self.body, ConnectionLost)

    def test_whoDoesNotWantItAnyMoreEndsConnection(self) -> None:
        """Who does not want it any more ends the connection."""
        self.body.addErrback(lambda _: None)
        self.body.cancel()
        self.assertTrue(self.response.transport.disconnecting or self.response.transport.disconnected)


class PrincipalTests(SynchronousTestCase):
    """Reading it."""

    def test_nameAndWhateverElseThereIsToSay(self) -> None:
        """A name, and whatever else there is to say."""
        self.assertEqual(principalOf(b'{"principal": "a", "x": 1}', "p"), Principal("a", proof="p"))
        asked = principalOf(b'{"principal": "a", "claims": {"n": 7, "of": {"x": "y"}, "no": true}}', "p")
        self.assertEqual(asked.claims, {"n": "7", "of.x": "y"})
        answer = b'{"principal": "a", "roles": ["r"], "permissions": {"publish": ["t"]}, "expires": 7.5}'
        found = principalOf(answer, "p")
        self.assertEqual((found.roles, found.grants["publish"], found.grants["read"], found.expires),
                         ({"r"}, ("t",), (), 7.5))  # fmt: skip

    def test_anythingElseIsNoAnswer(self) -> None:
        """Anything else is no answer."""
        for answer in (b"", b"{}", b"[]", b"true", b'"a"', b'{"principal": 7}', b'{"principal": ""}', b"\xff",
                       b'{"principal": "anonymous"}', b'{"principal": "spawn:x"}', b"[" * 60_000,
                       b'{"principal": "a", "roles": 7}', b'{"principal": "a", "permissions": {"fly": []}}',
                       b'{"principal": "a", "claims": ["x"]}', b'{"principal": "a", "expires": "x"}',
                       b'{"principal": "a", "expires": true}', b'{"principal": "a", "expires": NaN}',
                       b'{"principal": "a", "expires": 1e999}'):  # fmt: skip
            self.assertRaises(WrongClaim, principalOf, answer, "p")
