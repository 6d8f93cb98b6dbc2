"""Guessing: 100,000 wrong passwords in memory, and as many as there is time for at a running broker."""

import gc
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path

from twisted.internet.address import IPv4Address
from twisted.internet.defer import Deferred
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.errors import NoCapacity, Unauthorized
from fleximq.security.access_policy import AccessPolicy
from fleximq.security.authentication.attempt_delays import MAX_ADDRESSES, MAX_CONCURRENT, MAX_DELAY, AttemptDelays
from fleximq.security.authentication.authenticator import WRONG
from fleximq.security.checkers.hashed_secrets import hashOf
from fleximq.security.credentials import Token
from fleximq.security.principal import Admitted
from tests.attacks.case import AttackCase
from tests.fuzz.run import resident
from tests.nightly import nightly
from tests.security.secrets_on_disk import CHEAP

GUESSES = 100_000
MEBIBYTE = 1 << 20


@nightly
class MemoryTests(SynchronousTestCase):
    """A broker's door with tokens, in memory: what guessing costs there."""

    def setUp(self) -> None:
        """One token is known."""
        self.clock = Clock()
        self.file = Path(self.mktemp())
        self.file.write_text(f"anna:{hashOf('right')}\n")
        self.file.chmod(0o600)
        self.attempts = AttemptDelays(self.clock)
        settings = Settings.of({"auth": [f"tokens:{self.file}"]})
        security = AccessPolicy.of(settings, self.clock, attempts=self.attempts)
        self.admission = security.admissionFor()

    def guess(self, number: int, host: str) -> "Deferred[Admitted]":
        """Try one token from an address."""
        check: Deferred[Admitted] = self.admission.admit(Token(f"guess{number}"), IPv4Address("TCP", host, 1))
        return check

    def test_oneAddress(self) -> None:
        """From one address, as fast as can be: few are looked at, the others refused at once, and nothing is left."""
        before = resident()
        outcomes = {"refused": 0, "waiting": 0}
        for number in range(GUESSES):
            guess = self.guess(number, "192.0.2.1")
            if guess.called:
                self.failureResultOf(guess, NoCapacity)
                outcomes["refused"] += 1
            else:
                guess.addErrback(lambda failure: failure.trap(Unauthorized))
                outcomes["waiting"] += 1
        self.assertLessEqual(outcomes["waiting"], MAX_CONCURRENT)
        self.assertEqual(outcomes["refused"] + outcomes["waiting"], GUESSES)
        self.clock.pump([MAX_DELAY] * (MAX_CONCURRENT + 1))
        self.assertEqual(self.clock.getDelayedCalls(), [])
        self.assertLess(resident() - before, 16 * MEBIBYTE)

    def test_manyAddresses(self) -> None:
        """From more addresses than are remembered: no more are, and each guess is answered late."""
        before = resident()
        for number in range(2 * MAX_ADDRESSES):
            guess = self.guess(number, f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}")
            guess.addErrback(lambda failure: failure.trap(Unauthorized, NoCapacity))
            if not number % 1000:
                self.clock.advance(MAX_DELAY)
        self.clock.advance(MAX_DELAY)
        self.assertLessEqual(len(self.attempts), MAX_ADDRESSES)
        self.assertEqual(self.clock.getDelayedCalls(), [])
        gc.collect()
        self.assertLess(resident() - before, 32 * MEBIBYTE)

    def test_rightBeside(self) -> None:
        """Who has the right one, at another address, comes in meanwhile at once."""
        for number in range(1000):
            self.guess(number, "192.0.2.1").addErrback(lambda failure: failure.trap(Unauthorized, NoCapacity))
        right = self.admission.admit(Token("right"), IPv4Address("TCP", "192.0.2.2", 1))
        admitted = self.successResultOf(right)
        assert admitted.principal is not None
        self.assertEqual(admitted.principal.name, "anna")


@nightly
class ProcessTests(AttackCase):
    """A running broker with passwords, guessed at from another machine."""

    options = ("--listen", "tcp:0:interface=127.0.0.1", "--listen", "haproxy:tcp:0:interface=127.0.0.1")
    header = {"auth": {"type": "basic", "username": "anna", "password": "right"}}  # noqa: RUF012

    def more(self) -> Sequence[str]:
        """Write the file."""
        folder = Path(tempfile.mkdtemp(prefix="attack-"))
        self.addCleanup(shutil.rmtree, folder)
        path = folder / "passwords"
        path.write_text(f"anna:{CHEAP.hash('right')}\n")
        path.chmod(0o600)
        return "--auth", f"passwords:{path}", "--max-connect-rate", "20,100", "--max-join-rate", "10,50"

    def test_fewAreLookedAtAndThoseWaitForTheirAnswers(self) -> None:
        """Few are looked at, and those wait for their answers."""
        self.attack("passwords")
        self.assertGreater(self.counted(WRONG), 0)
