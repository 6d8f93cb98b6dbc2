"""A reload: all or nothing."""

from collections.abc import Callable
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.settings import Settings
from fleximq.errors import Conflict, SettingError
from fleximq.services.reload import Reload
from fleximq.startup.setting_changes import Difference, SettingsRefused

OLD, NEW = Settings(keepalive=1.0), Settings(keepalive=2.0, listen=("tcp:1",))


class ReloadTests(SynchronousTestCase):
    """Parties that note what they are asked to do."""

    def setUp(self) -> None:
        """Two parties follow everything."""
        self.done: list[object] = []
        self.wanted: Settings | Exception = NEW
        self.reload = Reload(OLD, self.again)
        self.reload.participants += [self.participant("a"), self.participant("b")]
        self.reload.readiness = self

    def reloading(self) -> None:
        """Note the beginning, for the service manager."""
        self.done.append("begun")

    def reloaded(self) -> None:
        """Note the end."""
        self.done.append("ended")

    def again(self) -> Settings:
        """Read the settings."""
        if isinstance(self.wanted, Exception):
            raise self.wanted
        return self.wanted

    def participant(self, name: str, error: Exception | None = None) -> Callable[[Settings], Callable[[], None]]:
        """Return a party that follows, or raises."""

        def prepare(settings: Settings) -> Callable[[], None]:
            self.done.append(f"{name} reads {settings.keepalive:g}")
            if error is not None:
                raise error
            return lambda: self.done.append(f"{name} follows")

        return prepare

    def sentences(self) -> tuple[str, ...]:
        """Return why a reload is refused; nothing has changed."""
        before = self.reload.settings
        refused = self.assertRaises(SettingsRefused, self.reload.reload)
        self.assertIs(self.reload.settings, before)
        self.assertNotIn("a follows", self.done)
        self.assertEqual((self.done[0], self.done[-1]), ("begun", "ended"))
        sentences: tuple[str, ...] = refused.sentences
        return sentences

    def test_taken(self) -> None:
        """All parties read, then all follow; what needs a restart keeps its value."""
        self.assertEqual(self.reload.reload(), Difference(("keepalive",), ("listen",)))
        self.assertEqual(self.done, ["begun", "a reads 2", "b reads 2", "a follows", "b follows", "ended"])
        self.assertEqual((self.reload.settings.keepalive, self.reload.settings.listen), (2.0, OLD.listen))

    def test_unreadable(self) -> None:
        """Settings that cannot be read are given to nobody."""
        self.wanted = SettingError("f cannot be read: no such file")
        self.assertEqual(self.sentences(), ("f cannot be read: no such file",))
        self.assertEqual(self.done, ["begun", "ended"])

    def test_wrong(self) -> None:
        """All that is wrong in them is said."""
        self.wanted = SettingsRefused(["one", "two"])
        self.assertEqual(self.sentences(), ("one", "two"))

    def test_oneParty(self) -> None:
        """What one party finds wrong keeps all others from following; each is asked."""
        self.reload.participants[1:1] = [
            self.participant("c", SettingError("three")),
            self.participant("d", SettingsRefused(["four", "five"])),
        ]
        self.assertEqual(self.sentences(), ("three", "four", "five"))
        self.assertIn("b reads 2", self.done)

    def test_danger(self) -> None:
        """So does a door that would be gone."""
        self.reload.settings = Settings(auth=("tokens:f",))
        (sentence,) = self.sentences()
        self.assertIn("auth is gone", sentence)

    def test_unforeseen(self) -> None:
        """So does what nobody foresaw, which is logged."""
        self.reload.participants.insert(0, self.participant("c", RuntimeError("oh")))
        self.assertEqual(self.sentences(), ("internal error, see the log",))
        self.assertEqual(len(self.flushLoggedErrors(RuntimeError)), 1)

    def test_cannotFollow(self) -> None:
        """A party that fails to follow is logged, and does not keep others from it."""
        self.reload.participants.insert(0, lambda settings: lambda: [][1])
        self.reload.reload()
        self.assertEqual(self.done[-3:], ["a follows", "b follows", "ended"])
        self.assertEqual(len(self.flushLoggedErrors(IndexError)), 1)

    def test_files(self) -> None:
        """A setting whose file has changed counts as changed, once; a file that is new or gone too."""
        path = Path(self.mktemp()).absolute()
        self.wanted = Settings(auth=(f"tokens:{path},prefix=a:",), tlsCertificate=str(path))
        self.reload = Reload(self.wanted, self.again)
        for change in (lambda: path.write_text("a"), lambda: path.write_text("ab"), path.unlink):
            change()
            self.assertEqual(self.reload.reload().changed, ("auth", "tls-certificate"))
            self.assertEqual(self.reload.reload().changed, ())

    def test_asked(self) -> None:
        """A client is answered the names, or a Conflict with all sentences."""
        self.assertEqual(self.reload.reloadForClient(), {"changed": ["keepalive"], "restart": ["listen"]})
        self.wanted = SettingsRefused(["one", "two"])
        self.assertEqual(str(self.assertRaises(Conflict, self.reload.reloadForClient)), "one\ntwo")

    def test_signalled(self) -> None:
        """A signal is answered in the log only."""
        self.wanted = SettingsRefused(["one"])
        self.reload.reloadOnSignal()
        self.assertIs(self.reload.settings, OLD)
