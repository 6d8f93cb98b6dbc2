"""Passwords and their Argon2 hashes."""

from queue import Queue
from types import SimpleNamespace
from typing import Any

from argon2 import PasswordHasher, Type, extract_parameters
from twisted.cred.checkers import ICredentialsChecker
from twisted.cred.error import UnauthorizedLogin
from twisted.internet.defer import Deferred
from twisted.python.threadpool import ThreadPool
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.errors import NoCapacity, SettingError
from fleximq.security.authentication.authenticator import AuthenticationMethod
from fleximq.security.authentication.checker_interfaces import (
    ICautious,
    IManyAtOnce,
    INeedsReactor,
    IRemembering,
    IVouching,
)
from fleximq.security.authentication.fair_queue import MAX_WAITING
from fleximq.security.checkers import passwords
from fleximq.security.checkers.passwords import AT_ONCE, LONGEST, MEMORY, PASSES, REMEMBERED, Passwords, hashOf
from fleximq.security.credentials import Password
from fleximq.security.principal import Principal
from tests.security.secrets_on_disk import CHEAP, ThreadClock, secretFile


class PasswordsTests(SynchronousTestCase):
    """A file with two people, whose hashes cost next to nothing and are checked at once."""

    def setUp(self) -> None:
        """Write it."""
        self.alice, self.bob = CHEAP.hash("one"), CHEAP.hash("zwei €")
        self.clock = ThreadClock()
        self.checker = self.make(f"alice:{self.alice}:ops\nbob:{self.bob}\n")

    def make(self, content: str) -> Passwords:
        """Return a checker for a file that holds this."""
        checker = Passwords(secretFile(self, content))
        checker.useReactor(self.clock)
        return checker

    @property
    def hashed(self) -> list[str]:
        """The hashes that passwords were checked against."""
        return [hash for hash, _ in self.clock.ran]

    def check(self, name: str, password: str) -> Principal | None:
        """Return who it is, None if nobody."""
        asked = self.checker.requestAvatarId(Password(name, password))
        refused = asked.addErrback(lambda failure: failure.trap(UnauthorizedLogin) and None)
        found: Principal | None = self.successResultOf(refused)
        return found

    def test_checkerProvidesItsInterface(self) -> None:
        """It is what it says."""
        for each in (ICredentialsChecker, IManyAtOnce, IRemembering, IVouching, INeedsReactor, ICautious):
            self.assertTrue(verifyObject(each, self.checker))

    def test_rightPasswordOfEachIsKnown(self) -> None:
        """The right password of each is known."""
        found = self.check("alice", "one")
        self.assertEqual(found and (found.name, found.roles), ("alice", {"ops"}))
        found = self.check("bob", "zwei €")
        self.assertEqual(found and found.name, "bob")

    def test_otherPasswordsAreRefused(self) -> None:
        """No other is: not another's, not the hash, not one that is too long or no text."""
        for name, password in (
            ("alice", "zwei €"),
            ("alice", ""),
            ("alice", "one "),
            ("alice", self.alice),
            ("Alice", "one"),
            ("carol", "one"),
            ("", ""),
            ("alice", "\udc80"),
            ("\udc80", "one"),
            ("alice", "x" * (LONGEST + 1)),
        ):
            self.assertIsNone(self.check(name, password), name)

    def test_sameCost(self) -> None:
        """A name that nobody has costs one hash as well, always the same for the same name, of those in the file."""
        self.check("alice", "wrong")
        self.assertEqual(self.hashed, [self.alice])
        del self.clock.ran[:]
        for number in range(100):
            self.check(f"nobody {number}", "one")
        self.assertEqual((len(self.hashed), set(self.hashed)), (100, {self.alice, self.bob}))
        first = self.hashed
        del self.clock.ran[:]
        for number in range(100):
            self.check(f"nobody {number}", "two")
        self.assertEqual(self.hashed, first)

    def test_decoyIsNobody(self) -> None:
        """Who guesses the password of the one whose hash it is, under a name that nobody has, is not let in."""
        self.checker = self.make(f"alice:{self.alice}\n")
        self.assertIsNone(self.check("nobody", "one"))
        self.assertEqual(self.hashed, [self.alice])

    def test_emptyFile(self) -> None:
        """With nobody in the file, it costs what a new hash would."""
        self.checker = self.make("")
        self.assertIsNone(self.check("nobody", "one"))
        asked = extract_parameters(self.hashed[0])
        self.assertEqual((asked.type, asked.memory_cost, asked.time_cost), (Type.ID, MEMORY, PASSES))

    def test_rightPasswordIsKnownWithoutHashForWhile(self) -> None:
        """A right password is known without a hash for a while; a wrong one never."""
        right, wrong = Password("alice", "one"), Password("alice", "two")
        self.assertIsNone(self.checker.remembered(right))
        self.check("alice", "two")
        found = self.check("alice", "one")
        self.assertEqual((self.checker.remembered(right), self.checker.remembered(wrong)), (found, None))
        self.assertIsNone(self.checker.remembered(Password("alice", "x" * (LONGEST + 1))))
        self.clock.advance(REMEMBERED)
        self.assertIsNone(self.checker.remembered(right))

    def test_earlierPasswordIsGoodUntilItsEnd(self) -> None:
        """An earlier password is good until its end; a name with two costs two hashes, as do names that nobody has."""
        for end, expires in (("21000101T000000Z", 4102444800.0), ("20000101T000000Z", None)):
            self.checker = self.make(f"alice:{self.alice}\nalice:{self.bob}:ops:{end}\n")
            found = self.check("alice", "zwei €")
            self.assertEqual(found and (found.name, found.expires), expires and ("alice", expires))
            if found is not None:
                self.assertEqual(self.checker.vouch(found), found)
                self.assertIsNone(self.make(f"alice:{self.alice}\n").vouch(found))
            current = self.check("alice", "one")
            self.assertEqual(current and (current.name, current.expires), ("alice", None))
            del self.clock.ran[:]
            self.check("alice", "wrong")
            self.check("nobody", "wrong")
            self.assertEqual(self.hashed, [self.alice, self.bob][: 2 if expires else 1] + [self.alice, self.bob])

    def test_somebodyIsVouchedForAsLongAsPasswordIsSameWithRolesOfToday(self) -> None:
        """Somebody is vouched for as long as the password is the same, with the roles of today."""
        who = self.check("alice", "one")
        assert who is not None
        for content, roles in (
            (f"alice:{self.alice}:new", {"new"}),
            (f"alice:{CHEAP.hash('one')}", None),
            (f"bob:{self.alice}", None),
            ("", None),
        ):
            found = self.make(content).vouch(who)
            self.assertEqual(found and set(found.roles), roles)

    def test_wrongFile(self) -> None:
        """A name that is there twice, what is no hash, and what asks for too much, are refused."""
        other = PasswordHasher(time_cost=1, memory_cost=8, parallelism=1, type=Type.I).hash("x")
        for hash, words in (
            ("secret", "has no Argon2 hash"),
            ("$2b$12$abcdefghijklmnopqrstuv", "has no Argon2 hash"),
            (other, "has a hash that is not Argon2id"),
            (self.alice.replace("m=8", "m=1048577"), "has a hash that would take too much memory or time"),
            (self.alice.replace("t=1", "t=65"), "has a hash that would take too much memory or time"),
        ):
            path = secretFile(self, f"alice:{hash}\n")
            error = self.assertRaises(SettingError, Passwords, path)
            self.assertEqual(str(error), f"{path} cannot be understood: line 1, for alice, {words}")
        path = secretFile(self, f"alice:{self.alice}\nalice:{self.bob}\n")
        error = self.assertRaises(SettingError, Passwords, path)
        self.assertEqual(str(error), f"{path} has the name alice twice")
        ends = f"alice:{self.alice}::21000101T000000Z\n"
        self.assertRaises(SettingError, Passwords, secretFile(self, ends + ends))

    def test_passwordsAndHashesAreNotShown(self) -> None:
        """Neither passwords nor hashes are shown."""
        shown = repr((self.checker, self.check("alice", "one"), Password("alice", "one")))
        self.assertNotIn("argon2", shown)
        self.assertNotIn("one'", shown)


class FloodTests(SynchronousTestCase):
    """More logins than threads, from many addresses."""

    def test_onlyFewReachThreadsBoundedNumberWaitsOthersAreRefusedAtOnce(self) -> None:
        """Only few reach the threads, a bounded number waits, the others are refused at once; all are answered."""
        clock = ThreadClock(held=True)
        checker = Passwords(secretFile(self, f"alice:{CHEAP.hash('one')}\n"))
        checker.useReactor(clock)
        method = AuthenticationMethod("passwords", checker)
        asked = [
            Deferred.fromCoroutine(method.ask(Password("alice", f"{number}"), number))
            for number in range(MAX_WAITING + AT_ONCE + 7)
        ]
        self.assertEqual(len(clock.waiting), AT_ONCE)
        refused = [each for each in asked if each.called]
        self.assertEqual(len(refused), 7)
        for each in refused:
            self.failureResultOf(each, NoCapacity)
        while clock.waiting:
            self.assertLessEqual(len(clock.waiting), AT_ONCE)
            clock.runOne()
        self.assertEqual(
            [self.successResultOf(each) for each in asked if each not in refused], [None] * (MAX_WAITING + AT_ONCE)
        )


class RealTests(SynchronousTestCase):
    """A hash as it is made, in a thread as it is taken."""

    def test_hashesRunInReactorsThreadsAndOutcomeIsReportedInItsOwn(self) -> None:
        """Hashes run in the reactor's threads, and the outcome is reported in its own."""
        told: Queue[Any] = Queue()
        pool = ThreadPool(0, 1)
        pool.start()
        self.addCleanup(pool.stop)
        reactor = SimpleNamespace(
            seconds=lambda: 0.0, getThreadPool=lambda: pool, callFromThread=lambda *call: told.put(call)
        )
        checker = passwords.passwords(secretFile(self, f"alice:{hashOf('one')}\n"))
        checker.useReactor(reactor)
        asked = checker.requestAvatarId(Password("alice", "one"))
        call, *arguments = told.get(timeout=300)
        self.assertNoResult(asked)
        call(*arguments)
        self.assertEqual(self.successResultOf(asked).name, "alice")

    def test_hashesAreMadeAsOWASPAsksEachWithSaltOfItsOwn(self) -> None:
        """Hashes are made as OWASP asks, each with a salt of its own."""
        first, second = hashOf("one"), hashOf("one")
        self.assertNotEqual(first, second)
        self.assertTrue(first.startswith("$argon2id$v=19$m=19456,t=2,p=1$"))
        self.assertIsNone(passwords.faultOfHash(first))
