"""Autobahn by its public interface, and with the one private name that a release may lack."""

import ast
import inspect
from pathlib import Path

from autobahn.twisted.websocket import WebSocketServerProtocol
from autobahn.websocket.interfaces import IWebSocketChannelStreamingApi
from twisted.internet.interfaces import ITransport
from twisted.internet.task import Clock
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.dialects import websocket
from fleximq.dialects.websocket.autobahn_parser import AutobahnParser
from tests.dialects.conversations import makeContext
from tests.dialects.echo import LIMIT, Echo, EchoCase, EchoFactory
from tests.dialects.websocket import test_protocol
from tests.dialects.websocket_peer import WebSocketPeer

#: The modules that know Autobahn.
FOLDER = Path(inspect.getfile(websocket)).parent


class PublicNameTests(SynchronousTestCase):
    """What is used of Autobahn."""

    def test_onlyInterfacesAndTheLogAreOverridden(self) -> None:
        """The parser overrides methods of Autobahn's interfaces, and the attribute that all its classes log to."""
        inherited = {name for each in WebSocketServerProtocol.__mro__[:-1] for name in vars(each)}
        overridden = {name for name in vars(AutobahnParser) if name in inherited and not name.startswith("__")}
        slots = set(AutobahnParser.__slots__)
        self.assertEqual(overridden - slots - set(dir(IWebSocketChannelStreamingApi)), {"log"})

    def test_ownNamesAreNotAutobahns(self) -> None:
        """A name of ours means nothing to Autobahn."""
        for name in ("servedWebSocket", "receive"):
            self.assertFalse(hasattr(WebSocketServerProtocol, name), name)

    def test_onePrivateNameIsUsed(self) -> None:
        """No module of WebSockets names a private method or attribute of Autobahn, but for one."""
        parser = AutobahnParser.__new__(AutobahnParser)
        WebSocketServerProtocol.__init__(parser)
        known = {name for name in {*dir(WebSocketServerProtocol), *vars(parser)} if name.startswith("_")}
        used = set()
        for path in FOLDER.glob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                used |= {str(getattr(node, field)) for field in ("attr", "value", "name") if hasattr(node, field)}
        private = {name for name in used & known if not name.startswith("__")}
        self.assertEqual(private, {"_dataReceived"} & known)

    def test_transportIsComplete(self) -> None:
        """Autobahn writes to a transport that has all methods of one."""
        served = EchoFactory(makeContext(Clock()), Echo, lambda: LIMIT)
        peer = WebSocketPeer(served)
        verifyObject(ITransport, peer.protocol._parser.transport)


class WithoutPrivateName(EchoCase):
    """A release of Autobahn without ``_dataReceived``."""

    def setUp(self) -> None:
        """Receive by the public method."""
        super().setUp()
        self.patch(AutobahnParser, "receive", WebSocketServerProtocol.dataReceived)


class PublicHandshakeTests(WithoutPrivateName, test_protocol.HandshakeTests):
    """The handshake is the same."""


class PublicMessageTests(WithoutPrivateName, test_protocol.MessageTests):
    """Messages arrive in the same way."""


class PublicViolationTests(WithoutPrivateName, test_protocol.ViolationTests):
    """Violations are answered by the same codes."""
