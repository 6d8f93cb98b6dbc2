"""Valid, wrong and late codes."""

import base64
import os
from pathlib import Path
from typing import Any

from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.cred.strcred import findCheckerFactory
from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.config.settings import Settings
from fleximq.errors import SettingError
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.credentials import Password
from fleximq_time_codes.checker import LASTING, PERIOD, TimeCodes, codeOf

KEY = b"12345678901234567890"


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
        for time, code in ((59, "287082"), (1111111109, "081804"), (1234567890, "005924"), (20000000000, "353130")):
            self.assertEqual(codeOf(KEY, time // PERIOD), code)

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
        clock = Clock()
        admission = AccessPolicy.of(Settings(auth=(f"time_codes:{self.path}",)), clock).admissionFor()
        asked = admission.admit(Password("alice", "000"), IPv4Address("TCP", "127.0.0.1", 1))
        self.assertNoResult(asked)
        clock.advance(1)
        self.failureResultOf(asked)
