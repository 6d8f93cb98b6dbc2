"""The broker's security as a whole, and the admissions made of it."""

import os
from pathlib import Path
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.config.permission_options import tables
from fleximq.config.settings import Settings
from fleximq.errors import AuthenticationFailed, SettingError, Unauthorized
from fleximq.interfaces import IAdmission
from fleximq.rights import ALL_BUT_ADMIN, EVERYTHING
from fleximq.security import access_policy
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.anonymous_access import REFUSAL
from fleximq.security.checkers.hashed_secrets import hashOf
from fleximq.security.credentials import ApiKey, Token
from fleximq.security.listener_principal import ListenerAdmission
from fleximq.security.principal import Admitted, Principal
from fleximq.security.web_sessions import WebSessions
from tests.security.secrets_on_disk import secretFile

HERE = IPv4Address("TCP", "127.0.0.1", 1)
REMOTE = IPv4Address("TCP", "192.0.2.1", 1)


class SecurityTests(SynchronousTestCase):
    """One security, and others that take its place."""

    def setUp(self) -> None:
        """Know one token, of alice."""
        self.clock = Clock()
        self.path = secretFile(self, f"alice:{hashOf('good')}:ops\n")

    def make(self, **settings: Any) -> AccessPolicy:
        """Return the security of these settings."""
        return AccessPolicy.of(Settings(**settings), self.clock)

    def locked(self, **settings: Any) -> AccessPolicy:
        """Return one that knows tokens."""
        return self.make(auth=(f"tokens:{self.path}",), **settings)

    def test_open(self) -> None:
        """Without checkers, everybody near is let in as nobody in particular, whatever it shows."""
        admission = self.make().admissionFor()
        self.assertTrue(verifyObject(IAdmission, admission))
        self.assertEqual(
            (admission.required, admission.refusal(HERE), admission.refusal(REMOTE)), (False, None, REFUSAL)
        )
        for credentials in (None, Token("x")):
            self.assertEqual(admission.admit(credentials, HERE), Admitted(None, EVERYTHING))

    def test_principalOfListener(self) -> None:
        """A listener's principal needs no credentials, has its own rights, and stays after a reload; only nearby."""
        security = self.locked(principals=tables("principals", {"workers": {"consume": ["jobs"]}}))
        admission = ListenerAdmission("workers", security.rightsOf)
        self.assertTrue(verifyObject(IAdmission, admission))
        self.assertEqual(
            (admission.required, admission.refusal(HERE), admission.refusal(REMOTE)), (False, None, REFUSAL)
        )
        admitted = admission.admit(None, HERE)
        assert admitted.principal is not None
        self.assertEqual(admitted.principal.name, "workers")
        self.assertTrue(admitted.rights.may("consume", "jobs") and not admitted.rights.may("publish", "jobs"))
        security.replace(self.locked())
        self.assertTrue(security.vouchesFor(admitted.principal))
        self.assertIs(admission.renewed(admitted).rights, ALL_BUT_ADMIN)

    def test_adminIsNamed(self) -> None:
        """Without permissions, only a broker for its own machine lets everybody act as admin."""
        self.assertIs(self.make().rightsOf(None), EVERYTHING)
        for security in (self.make(allowAnonymous=True), self.locked(), self.locked(allowAnonymous=True)):
            for principal in (None, Principal("alice"), Principal("spawn:x")):
                self.assertIs(security.rightsOf(principal), ALL_BUT_ADMIN)

    def test_tickets(self) -> None:
        """A ticket of the console is accepted once, with the rights of now; with other policies too."""
        security = self.locked()
        security.sessions = sessions = WebSessions(self.clock.seconds)
        check: Any = security.admit(Token("good"), HERE)
        alice = self.successResultOf(check)
        tickets = [sessions.ticket(alice, None) for _ in range(3)]
        self.assertEqual(security.admit(Token(tickets[0]), HERE), alice._replace(byTicket=True))
        self.assertRaises(Unauthorized, security.admit, Token(tickets[0]), HERE)
        security.replace(self.locked(principals=tables("principals", {"alice": {"read": ["api/about"]}})))
        admitted: Any = security.admit(Token(tickets[1]), HERE)
        self.assertEqual([admitted.rights.may("read", f"api/{name}") for name in ("about", "clients")], [True, False])
        self.path = secretFile(self, f"bob:{hashOf('other')}\n")
        security.replace(self.locked())
        self.assertRaises(Unauthorized, security.admit, Token(tickets[2]), HERE)

    def test_openToAll(self) -> None:
        """The settings decide whether that holds for those from elsewhere, and those behind a proxy."""
        admission = self.make(allowAnonymous=True).admissionFor(proxied=True)
        self.assertIsNone(admission.refusal(REMOTE))
        self.assertEqual(self.make().admissionFor(proxied=True).refusal(HERE), REFUSAL)

    def test_locked(self) -> None:
        """With checkers nobody is refused for its address, and nobody comes in without credentials."""
        admission = self.locked().admissionFor()
        self.assertEqual((admission.required, admission.refusal(REMOTE)), (True, None))
        for address in (HERE, REMOTE):
            self.assertRaises(Unauthorized, admission.admit, None, address)
        admitted = self.successResultOf(admission.admit(Token("good"), REMOTE))
        assert admitted.principal is not None
        self.assertEqual((admitted.principal.name, admitted.principal.roles, admitted.rights),
                         ("alice", {"ops"}, ALL_BUT_ADMIN))  # fmt: skip
        self.failureResultOf(admission.admit(ApiKey("good"), HERE), AuthenticationFailed)
        wrong = admission.admit(Token("bad"), HERE)
        self.clock.advance(1)
        self.failureResultOf(wrong, Unauthorized)

    def test_ajar(self) -> None:
        """Where those who show nothing are let in, those who show something wrong are not."""
        admission = self.locked(allowAnonymous=True).admissionFor()
        self.assertFalse(admission.required)
        self.assertIsNone(admission.admit(None, REMOTE).principal)
        principal = self.successResultOf(admission.admit(Token("good"), REMOTE)).principal
        assert principal is not None
        self.assertEqual(principal.name, "alice")
        wrong = admission.admit(Token("bad"), HERE)
        self.clock.advance(1)
        self.failureResultOf(wrong, Unauthorized)

    def test_tablesOfSettingsSayWhatTheyMayDo(self) -> None:
        """The tables of the settings say what they may do."""
        values = {"auth": [f"tokens:{self.path}"], "roles": {"ops": {"publish": ["a"]}}}
        security = AccessPolicy.of(Settings.of(values), self.clock)
        admitted = self.successResultOf(security.admissionFor().admit(Token("good"), HERE))
        self.assertEqual((admitted.rights.may("publish", "a"), admitted.rights.may("publish", "b")), (True, False))
        self.assertFalse(security.rightsOf(None).may("publish", "a"))

    def test_admissionsFollowWhatTakesSecuritysPlace(self) -> None:
        """Admissions follow what takes a security's place."""
        security = self.make()
        admission = security.admissionFor()
        security.replace(self.locked())
        self.assertTrue(admission.required)
        self.assertRaises(Unauthorized, admission.admit, None, HERE)
        security.replace(self.make())
        self.assertEqual((admission.required, admission.refusal(REMOTE)), (False, REFUSAL))

    def test_attemptsGoOn(self) -> None:
        """What is known of wrong attempts outlives a replacement."""
        security = self.locked()
        security.admissionFor().admit(Token("bad"), HERE).addErrback(lambda _: None)
        settings = Settings(auth=(f"tokens:{self.path}",))
        security.replace(AccessPolicy.of(settings, self.clock, attempts=security.attempts))
        wrong = security.admissionFor().admit(Token("bad"), HERE)
        self.clock.advance(0.15)
        self.assertNoResult(wrong)
        self.clock.advance(0.1)
        self.failureResultOf(wrong, Unauthorized)

    def test_somebodyWhoWasLetInIsVouchedForUntilItsEntryIsGoneOrAnother(self) -> None:
        """Somebody who was let in is vouched for until its entry is gone, or another secret is in its place."""
        security = self.locked()
        who = self.successResultOf(security.admissionFor().admit(Token("good"), HERE)).principal
        for content, vouched in (
            (f"alice:{hashOf('good')}\n", True),
            (f"alice:{hashOf('other')}\n", False),
            (f"bob:{hashOf('good')}\n", False),
            ("", False),
        ):
            Path(self.path).write_text(content)
            security.replace(self.locked())
            self.assertEqual(security.vouchesFor(who), vouched, content)

    def test_current(self) -> None:
        """Its roles are those of today."""
        security = self.locked()
        who = self.successResultOf(security.admissionFor().admit(Token("good"), HERE)).principal
        assert who is not None
        Path(self.path).write_text(f"alice:{hashOf('good')}:other\n")
        security.replace(self.locked())
        current = security.current(who)
        self.assertEqual(current and (current.name, current.roles), ("alice", {"other"}))

    def test_whereNothingChecksAnyMoreNobodyIsVouchedForButThoseWhoShowed(self) -> None:
        """Where nothing checks any more, nobody is vouched for but those who showed nothing, and our own programs."""
        security = self.locked()
        who = self.successResultOf(security.admissionFor().admit(Token("good"), HERE)).principal
        self.assertFalse(security.vouchesFor(None))
        security.replace(self.make())
        self.assertEqual((security.vouchesFor(who), security.vouchesFor(None)), (False, True))
        for each in (security, self.locked()):
            self.assertTrue(each.vouchesFor(Principal("spawn:worker")))

    def test_revokedMeanwhile(self) -> None:
        """Who is revoked while its credentials are checked is not let in."""
        security = self.locked()
        self.patch(security, "current", lambda who: None)
        self.failureResultOf(security.admit(Token("good"), HERE), Unauthorized)

    def test_wrongFile(self) -> None:
        """A file that is wrong is a sentence, and nothing is made."""
        Path(self.path).write_text("alice:good\n")
        error = self.assertRaises(SettingError, self.locked)
        self.assertTrue(str(error).startswith(f"auth tokens: {self.path} cannot be understood: line 1, for alice"))
        self.assertNotIn("good", str(error))

    def test_fileThatIsOpenToOthersIsSaidInLog(self) -> None:
        """A file that is open to others is said in the log."""
        lines: list[str] = []
        self.patch(access_policy, "_log", type("L", (), {"warn": lambda _, text, sentence: lines.append(sentence)})())
        os.chmod(self.path, 0o644)
        self.locked()
        self.assertEqual(lines, [f"{self.path} is open to others than its owner: chmod 600 {self.path}"])
