"""Valid, wrong and late codes."""

import base64
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.strcred import findCheckerFactory
from twisted.internet.address import IPv4Address
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.trial.unittest import SynchronousTestCase
from zope.interface import implementer
from zope.interface.verify import verifyObject

from fleximq.api import IPassword, SettingError, makeService
from fleximq_time_codes.checker import LASTING, PERIOD, TimeCodes, codeOf

KEY = b"12345678901234567890"
HERE = IPv4Address("TCP", "127.0.0.1", 50000)


@implementer(IPassword)
class Password(NamedTuple):
    """What a client shows."""

    username: str
    password: str


class TimeCodesTests(SynchronousTestCase):
    """The key of alice, and a clock that the tests move."""

    def setUp(self) -> None:
        self.path = self.write(f"alice:{base64.b32encode(KEY).decode()}\n")
        self.now = 3000.0
        self.checker = TimeCodes(self.path, lambda: self.now)

    def write(self, content: str) -> str:
        """Return the path of a private file with this content."""
        path = Path(self.mktemp()).absolute()
        path.write_text(content)
        os.chmod(path, 0o600)
        return str(path)

    def show(self, period: int, name: str = "alice") -> Any:
        """Return the principal for the code of a period, or None."""
        try:
            return self.checker.requestAvatarId(Password(name, codeOf(KEY, period)))
        except UnauthorizedLogin:
            return None

    def test_vectors(self) -> None:
        """RFC 6238, appendix B: the last six digits."""
        for moment, code in ((59, "287082"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")):
            self.assertEqual(codeOf(KEY, moment // PERIOD), code)

    def test_aCodeIsValidInItsPeriodAndBothNeighbours(self) -> None:
        found = []
        for period in range(97, 104):
            self.checker = TimeCodes(self.path, lambda: self.now)
            found.append(self.show(period) is not None)
        self.assertEqual(found, [False, False, True, True, True, False, False])

    def test_aCodeIsValidOnceAndThenNoEarlierOne(self) -> None:
        who = self.show(100)
        self.assertEqual((who.name, who.expires), ("alice", 3000.0 + LASTING))
        self.assertEqual((self.show(100), self.show(99)), (None, None))
        self.assertIsNotNone(self.show(101))

    def test_aCodeIsValidForNoOtherNameAndAWrongTextForNone(self) -> None:
        self.assertIsNone(self.show(100, "bob"))
        for shown in ("", "123", "é", codeOf(KEY, 100) + "0"):
            self.assertRaises(UnauthorizedLogin, self.checker.requestAvatarId, Password("alice", shown))
        self.assertRaises(UnauthorizedLogin, self.checker.requestAvatarId, Password("bob", codeOf(b"", 100)))

    def test_wrongFile(self) -> None:
        for line in ("alice", "alice:AAAA", "alice:!", ":AAAAAAAAAAAAAAAA", "anonymous:AAAAAAAAAAAAAAAA"):
            self.assertRaises(SettingError, TimeCodes, self.write(line))

    def test_aRemovedPrincipalIsNotVouchedFor(self) -> None:
        who = self.show(100)
        self.assertEqual((self.checker.vouch(who), TimeCodes(self.write("")).vouch(who)), (who, None))

    def test_twistedFindsTheCheckerAndTheBrokerUsesIt(self) -> None:
        self.assertTrue(verifyObject(ICredentialsChecker, findCheckerFactory("time_codes").generateChecker(self.path)))
        reactor: Any = MemoryReactorClock()
        broker = makeService(reactor, auth=[f"time_codes:{self.path}"])
        broker.startService()
        self.addCleanup(broker.stopService)
        factory = reactor.tcpServers[0][1]
        answers = [self.answer(reactor, factory, code) for code in ("000000", codeOf(KEY, int(time.time()) // PERIOD))]
        self.assertEqual(answers, [b"HTTP/1.1 401", b"HTTP/1.1 200"])

    def answer(self, reactor: Any, factory: Any, code: str) -> bytes:
        """Return the begin of the answer to a request for a page that needs credentials."""
        protocol, transport = factory.buildProtocol(HERE), StringTransport(peerAddress=HERE)
        protocol.makeConnection(transport)
        shown = base64.b64encode(f"alice:{code}".encode())
        protocol.dataReceived(b"GET /api/about HTTP/1.1\r\nHost: x\r\nAuthorization: Basic " + shown + b"\r\n\r\n")
        reactor.pump([0.5] * 10)
        answer: bytes = transport.value()[:12]
        return answer
