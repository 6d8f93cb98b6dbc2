"""What a listener speaks, and what becomes of plug-ins that cannot be loaded."""

from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.blipmq import BlipFactory
from fleximq.dialects.fleximq_ws import FlexiWebSocketFactory
from fleximq.dialects.http.protocol import HttpFactory
from fleximq.dialects.registry import OWN, Registry, installed
from fleximq.errors import SettingError
from fleximq.interfaces import IDialect
from fleximq.plugin import Dialect
from fleximq.services.network.listener_factory import ListenerDialects, dialectsOf
from tests.dialects.conversations import makeContext

#: A dialect that borrows a factory of the broker's own.
PLUS = Dialect("plus", stream="fleximq.dialects.blipmq.BlipFactory", beginnings=[b"+"], title="Plus", purpose="tests")
#: One whose package is gone.
BROKEN = Dialect("broken", stream="there.is.no.such", beginnings=[b"-"], title="Broken")
#: One without a place on the welcome page.
QUIET = Dialect("quiet", webSocket="fleximq.dialects.fleximq_ws.FlexiWebSocketFactory")


class SpeakTests(SynchronousTestCase):
    """Dialects by name, and their factories."""

    def dialectsOf(self, *plugIns: IDialect, only: str | None = None) -> ListenerDialects:
        """Return what is spoken where these are installed beside the broker's own."""
        own = [each for each in installed().dialects.values() if each.name in OWN]
        return dialectsOf(Registry.of([*own, *plugIns], []), makeContext(Clock()), only)

    def test_own(self) -> None:
        """Without plug-ins the broker's own are spoken, and nothing is claimed."""
        spoken = self.dialectsOf()
        self.assertEqual(set(spoken.streams), {"fleximq", "blipmq", "minimq"})
        self.assertEqual(set(spoken.webSockets), {"fleximq", "identity"})
        self.assertEqual(dict(spoken.claims), {})
        self.assertEqual([way.name for way in spoken.ways], ["FlexiMQ", "BlipMQ", "MiniMQ", "Identity", "HTTP"])
        self.assertIsInstance(spoken.http, HttpFactory)

    def test_plugIns(self) -> None:
        """Those of others are spoken beside them."""
        spoken = self.dialectsOf(PLUS, QUIET)
        self.assertIsInstance(spoken.streams["plus"], BlipFactory)
        self.assertIsInstance(spoken.webSockets["quiet"], FlexiWebSocketFactory)
        self.assertEqual(dict(spoken.claims), {b"+": "plus"})
        self.assertEqual([way.name for way in spoken.ways][5:], ["Plus"])

    def test_only(self) -> None:
        """Where a listener names one, it is spoken alone."""
        spoken = self.dialectsOf(PLUS, QUIET, only="plus")
        self.assertEqual((list(spoken.streams), list(spoken.webSockets)), (["plus"], []))
        self.assertEqual([way.name for way in spoken.ways], ["Plus"])

    def test_onlyHttp(self) -> None:
        """Plain HTTP is neither a stream nor a WebSocket: the router of the listener has it."""
        spoken = self.dialectsOf(PLUS, only="http")
        self.assertEqual((list(spoken.streams), list(spoken.webSockets)), ([], []))
        self.assertIsInstance(spoken.http, HttpFactory)
        self.assertIsNone(self.dialectsOf(PLUS, only="fleximq").http)

    def test_broken(self) -> None:
        """One that cannot be loaded is logged and left out; no others suffer, and nobody waits for its beginnings."""
        spoken = self.dialectsOf(BROKEN, PLUS)
        self.assertEqual(set(spoken.streams), {"fleximq", "blipmq", "minimq", "plus"})
        self.assertEqual(dict(spoken.claims), {b"+": "plus"})
        self.assertNotIn("Broken", [way.name for way in spoken.ways])
        self.assertEqual(len(self.flushLoggedErrors(Exception)), 1)

    def test_onlyTheBroken(self) -> None:
        """Where a listener names it, that is a sentence."""
        error = self.assertRaises(SettingError, self.dialectsOf, BROKEN, only="broken")
        self.assertIn("the dialect broken cannot be loaded: ", str(error))

    def test_missing(self) -> None:
        """So is a dialect that is not there at all."""
        error = self.assertRaises(SettingError, self.dialectsOf, only="mqtt")
        self.assertEqual(str(error), "the dialect mqtt is not installed")
