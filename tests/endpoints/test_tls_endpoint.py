"""Certificates that change on disk while they are served."""

import os
from pathlib import Path
from typing import Any

from twisted.internet.interfaces import IOpenSSLServerConnectionCreator
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.logger import formatEvent
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.endpoints import tls_endpoint
from fleximq.endpoints.tls_context import TlsFiles
from fleximq.endpoints.tls_endpoint import PAUSE, RenewingCertificate, TlsFactory
from fleximq.errors import SettingError
from tests.certificates import Made, makeCertificate
from tests.endpoints.tls_peers import Echo, TlsPeer
from tests.log_observer import observeLog


class RenewalTests(SynchronousTestCase):
    """One certificate, shown to clients that come one after the other."""

    def setUp(self) -> None:
        """A server that shows the certificate ``first``."""
        self.folder = Path(self.mktemp())
        self.folder.mkdir()
        self.first = makeCertificate(self.folder, "first")
        self.second = makeCertificate(self.folder, "second")
        self.files = TlsFiles(str(self.folder / "shown.crt"), str(self.folder / "shown.key"))
        self.show(self.first)
        self.reactor: Any = MemoryReactorClock()
        self.certificate = RenewingCertificate(self.files, self.reactor)
        self.log: list[str] = []
        observeLog(self, self.observe)

    def observe(self, event: Any) -> None:
        """Note what is logged."""
        if event.get("log_namespace") == "fleximq.endpoints.tls_endpoint":
            self.log.append(formatEvent(event))

    def show(self, made: Made) -> None:
        """Exchange the files, as programs that renew certificates do."""
        for source, target in ((made.key, self.files.key), (made.certificate, self.files.certificate)):
            assert target is not None
            fresh = Path(f"{target}.new")
            fresh.write_bytes(source.read_bytes())
            os.replace(fresh, target)

    def client(self) -> TlsPeer:
        """Return a client that trusts both and is not connected yet."""
        context = self.first.trusting()
        context.load_verify_locations(self.second.certificate)
        context.check_hostname = False
        return TlsPeer(
            self.reactor, TlsFactory(self.certificate, False, Factory.forProtocol(Echo), self.reactor), context
        )

    def shown(self) -> str:
        """Return whose certificate a new client sees, a second later."""
        self.reactor.advance(PAUSE)
        return self.client().nameShown()

    def test_renewalIsTwistedsContextFactory(self) -> None:
        """It is what Twisted asks for connections."""
        verifyObject(IOpenSSLServerConnectionCreator, self.certificate)

    def test_newHandshakesGetNewCertificate(self) -> None:
        """New handshakes get the new certificate; who is there keeps talking."""
        old = self.client()
        self.assertEqual(old.nameShown(), "first")
        self.show(self.second)
        self.assertEqual(self.shown(), "second")
        self.assertEqual(old.asked(b"still here"), b"still here")
        (line,) = self.log
        self.assertIn(f"The certificate in {self.files.certificate} was read anew; it ends on ", line)

    def test_halfDone(self) -> None:
        """A handshake that has begun ends with the certificate it began with."""
        old = self.client()
        self.show(self.second)
        self.assertEqual(self.shown(), "second")
        self.assertEqual(old.nameShown(), "first")

    def test_onceASecond(self) -> None:
        """The files are not looked at more often."""
        self.reactor.advance(PAUSE)
        self.client()
        self.show(self.second)
        self.reactor.advance(PAUSE * 0.9)
        self.assertEqual(self.client().nameShown(), "first")
        self.reactor.advance(PAUSE * 0.1)
        self.assertEqual(self.client().nameShown(), "second")

    def test_nothingIsReadWhileNothingChanges(self) -> None:
        """Nothing is read while nothing changes."""
        self.patch(tls_endpoint, "serverContext", lambda files: self.fail("was read"))
        self.assertEqual((self.shown(), self.shown(), self.log), ("first", "first", []))

    def test_halfWritten(self) -> None:
        """What is half-written keeps the old one, is told once, and taken once it is whole."""
        assert self.files.key is not None
        whole = self.second.certificate.read_bytes()
        Path(self.files.key).write_bytes(self.second.key.read_bytes())
        Path(self.files.certificate).write_bytes(whole[: len(whole) // 2])
        self.assertEqual([self.shown() for _ in range(3)], ["first"] * 3)
        self.assertEqual(
            self.log,
            [
                "A certificate has changed but is not taken, what was read before is: "
                f"{self.files.certificate} breaks off in the middle"
            ],
        )
        Path(self.files.certificate).write_bytes(whole)
        self.assertEqual(self.shown(), "second")

    def test_everyPrefix(self) -> None:
        """However far the writing has come, no client is refused and none sees anything else."""
        both = TlsFiles(str(self.folder / "one"))
        path = Path(both.certificate)
        path.write_bytes(self.first.both.read_bytes())
        self.certificate = RenewingCertificate(both, self.reactor)
        whole = self.second.both.read_bytes()
        for length in range(0, len(whole) - 1, 31):
            path.write_bytes(whole[:length])
            self.assertEqual(self.shown(), "first", length)
        path.write_bytes(whole)
        self.assertEqual(self.shown(), "second")

    def test_oneOfTwo(self) -> None:
        """A certificate whose key has not come yet is not shown."""
        Path(self.files.certificate).write_bytes(self.second.certificate.read_bytes())
        self.assertEqual(self.shown(), "first")
        self.assertIn("does not belong to the certificate", self.log[0])
        assert self.files.key is not None
        Path(self.files.key).write_bytes(self.second.key.read_bytes())
        self.assertEqual(self.shown(), "second")

    def test_filesThatAreGoneOrFolderInTheirPlaceKeepOldOne(self) -> None:
        """Files that are gone, or a folder in their place, keep the old one."""
        os.remove(self.files.certificate)
        self.assertEqual(self.shown(), "first")
        os.mkdir(self.files.certificate)
        self.assertEqual(self.shown(), "first")
        self.assertEqual(len(self.log), 2)

    def test_reloadTellsWhatIsWrong(self) -> None:
        """It can be asked to read at once, and says what is wrong."""
        self.show(self.second)
        self.certificate.prepare()()
        self.assertEqual(self.client().nameShown(), "second")
        os.remove(self.files.certificate)
        error = self.assertRaises(SettingError, self.certificate.prepare)
        self.assertEqual(str(error), f"{self.files.certificate} cannot be read: no such file or directory")
        self.assertEqual(self.client().nameShown(), "second")

    def test_whatWasPreparedIsUsedWhenThatIsSaidNotBefore(self) -> None:
        """What was prepared is used when that is said, not before; it may come from other files."""
        use = self.certificate.prepare(TlsFiles(str(self.second.both)))
        self.assertEqual(self.shown(), "first")
        use()
        self.assertEqual((self.client().nameShown(), self.shown()), ("second", "second"))
        self.second.both.write_bytes(self.first.both.read_bytes())
        self.assertEqual(self.shown(), "first")
