"""All certificates of a broker, read anew together."""

import os
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from twisted.internet.endpoints import quoteStringArgument
from twisted.internet.protocol import Factory
from twisted.internet.testing import MemoryReactorClock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.endpoints.listen import Listen, ListenDefaults
from fleximq.errors import SettingError
from fleximq.services.network.listeners import ListenerService, prepareCertificates
from tests.certificates import makeCertificate
from tests.endpoints.tls_peers import Echo, TlsPeer


def leave(sentence: str, reactor: object = None) -> NoReturn:
    """Depart as far as a test can."""
    raise AssertionError(sentence)


class CertificatesTests(SynchronousTestCase):
    """Two listeners with files of their own, and one without."""

    def setUp(self) -> None:
        """Both show the certificate ``first``."""
        self.folder = Path(self.mktemp()).absolute()
        self.folder.mkdir()
        self.first, self.second = (makeCertificate(self.folder, name) for name in ("first", "second"))
        self.files = [self.folder / "a", self.folder / "b"]
        for path in self.files:
            path.write_bytes(self.first.both.read_bytes())
        self.reactor: Any = MemoryReactorClock()
        texts = ["tcp:1", f"fleximqtls:cert={quoteStringArgument(str(self.files[0]))}:inner=tcp\\:2", "tls://*:3"]
        defaults = ListenDefaults(certificate=str(self.files[1]))
        self.services = [self.opened(Listen.parse(text, defaults)) for text in texts]
        self.prepare = partial(prepareCertificates, self.services)

    def opened(self, listen: Listen) -> ListenerService:
        """Return a listener that is open."""
        service = ListenerService(self.reactor, listen, Factory.forProtocol(Echo), leave, leave)
        service.startService()
        return service

    def shown(self) -> list[str]:
        """Return whose certificates new clients see, without a second going by."""
        context = self.first.trusting()
        context.load_verify_locations(self.second.certificate)
        context.check_hostname = False
        factories = [server[1] for server in self.reactor.tcpServers][1:]
        return [TlsPeer(self.reactor, factory, context).nameShown() for factory in factories]

    def change(self, *paths: Path) -> None:
        """Write the second certificate there."""
        for path in paths:
            path.write_bytes(self.second.both.read_bytes())

    def test_all(self) -> None:
        """They are read at once."""
        self.change(*self.files)
        self.assertEqual(self.shown(), ["first", "first"])
        self.prepare()()
        self.assertEqual(self.shown(), ["second", "second"])

    def test_nothing(self) -> None:
        """If one cannot be used, none is."""
        for wrong in self.files:
            self.change(*self.files)
            os.truncate(wrong, 500)
            error = self.assertRaises(SettingError, self.prepare)
            self.assertEqual(str(error), f"{wrong} breaks off in the middle")
            self.assertEqual(self.shown(), ["first", "first"])

    def test_prepared(self) -> None:
        """They are read when that is asked for, and used when that is said."""
        self.change(*self.files)
        use = self.prepare()
        for path in self.files:
            path.unlink()
        self.assertEqual(self.shown(), ["first", "first"])
        use()
        self.assertEqual(self.shown(), ["second", "second"])

    def test_otherFiles(self) -> None:
        """New settings may name other files for URLs; endpoint strings name their own."""
        self.prepare(Settings(tlsCertificate=str(self.second.both)))()
        self.assertEqual(self.shown(), ["first", "second"])
        wrong = Settings(tlsCertificate="/no")
        self.assertRaises(SettingError, self.prepare, wrong)
        self.assertRaises(SettingError, self.prepare, Settings(tlsCertificate=str(self.second.both), tlsCiphers="x"))

    def test_none(self) -> None:
        """Without any there is nothing to read."""
        prepareCertificates(self.services[:1])()
