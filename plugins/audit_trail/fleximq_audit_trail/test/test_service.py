"""The extension of a complete broker in memory: what it writes."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.defer import maybeDeferred
from twisted.internet.testing import MemoryReactorClock, StringTransport
from twisted.plugin import getPlugins
from twisted.trial.unittest import SynchronousTestCase
from zope.interface.verify import verifyObject

from fleximq.api import EVERYTHING, IBrokerExtension, IBrokerObserver, IForm, ISubscriber, SettingError, makeService
from fleximq_audit_trail.choices import Choices
from fleximq_audit_trail.service import AuditTrail
from fleximq_audit_trail.watcher import LONGEST, Watcher

HERE = IPv4Address("TCP", "127.0.0.1", 50000)


class ReactorAtOnce(MemoryReactorClock):
    """A reactor in memory whose thread pool does each call immediately."""

    def getThreadPool(self) -> Any:
        return self

    def callInThreadWithCallback(self, called: Any, call: Any, *arguments: Any) -> None:
        result: list[Any] = []
        maybeDeferred(call, *arguments).addBoth(result.append)
        called(True, result[0])

    def callFromThread(self, call: Any, *arguments: Any) -> None:
        call(*arguments)


class AuditTrailTests(SynchronousTestCase):
    """A broker with the extension."""

    def setUp(self) -> None:
        self.path = Path(self.mktemp()).absolute()

    def broker(self, **options: object) -> Any:
        """Return a started broker."""
        self.reactor: Any = ReactorAtOnce()
        whole = makeService(self.reactor, extension={"audit_trail": {"path": str(self.path), **options}})
        whole.startService()
        return whole

    def connect(self) -> Any:
        """Return the protocol of a new connection to it."""
        protocol = self.reactor.tcpServers[0][1].buildProtocol(HERE)
        protocol.makeConnection(StringTransport(peerAddress=HERE))
        return protocol

    def events(self) -> list[dict[str, Any]]:
        """Return the lines of the file, without the times."""
        events = [json.loads(line) for line in self.path.read_text().splitlines()]
        self.assertTrue(all(each.pop("time").endswith("+00:00") for each in events))
        return events

    def published(self, whole: Any) -> list[dict[str, Any]]:
        """Stop the broker, after the time that it gives to clients, and return its publications."""
        whole.stopService()
        self.reactor.pump([1.0] * 30)
        return [each for each in self.events() if each["event"] == "published"]

    def test_twistedFindsThePlugIn(self) -> None:
        (found,) = (each for each in getPlugins(IBrokerExtension) if each.name == "audit_trail")
        verifyObject(IBrokerExtension, found)

    def test_watcherProvidesItsInterfaces(self) -> None:
        watcher = Watcher([].append, None)  # type: ignore[arg-type]
        for each in (IBrokerObserver, ISubscriber, IForm):
            verifyObject(each, watcher)

    def test_day(self) -> None:
        """Start, join, publications, leave and stop; no payloads."""
        whole = self.broker()
        peer = self.connect()
        peer.dataReceived(b"PRODUCE:1:::news:::secret\nPRODUCE:2:::news:::word\nPING:\n")
        peer.connectionLost()
        whole.stopService()
        who = {"client_id": 1000, "name": "minimq-1000", "dialect": "minimq"}
        self.assertEqual(
            self.events(),
            [
                {"event": "started"},
                {"event": "joined", **who, "address": "127.0.0.1:50000", "principal": None},
                {"event": "published", "topic": "news", **who, "count": 2, "size": 10},
                {"event": "left", **who, "reason": "client closed"},
                {"event": "stopped"},
            ],
        )
        self.assertNotIn("secret", self.path.read_text())

    def test_adjacentPublicationsWithOneEnvelopeAreOneLine(self) -> None:
        whole = self.broker()
        client = whole.connect(EVERYTHING)
        client.publish("t", "abc")
        client.publish_many("t", ["abc"] * 3)
        said = [(each["dialect"], each["count"], each["size"]) for each in self.published(whole)]
        self.assertEqual(said, [("fleximq", 1, 4), ("fleximq", 3, 12)])

    def test_payloadsAreTextOfLimitedLength(self) -> None:
        whole = self.broker(payloads=True)
        self.connect().dataReceived(b"PRODUCE:1:::a:::h\xc3\xa9\nPRODUCE:2:::a:::" + b"x" * (LONGEST + 1) + b"\n")
        (said,) = self.published(whole)
        self.assertEqual(said["payloads"], ["h\u00e9", "x" * LONGEST])

    def test_onlyMatchingTopicsAreWritten(self) -> None:
        whole = self.broker(pattern="a.*")
        self.connect().dataReceived(b"PRODUCE:1:::a.b:::x\nPRODUCE:2:::b:::x\n")
        self.assertEqual([each["topic"] for each in self.published(whole)], ["a.b"])

    def test_linesAreWrittenWhileTheBrokerRuns(self) -> None:
        whole = self.broker(every=0.5)
        self.connect().dataReceived(b"PING:\n")
        self.reactor.advance(0.6)
        self.assertEqual([each["event"] for each in self.events()], ["started", "joined"])
        whole.stopService()

    def test_nothingIsWrittenAfterTheStop(self) -> None:
        whole = self.broker()
        peer = self.connect()
        whole.stopService()
        peer.dataReceived(b"PRODUCE:1:::a:::x\n")
        self.assertEqual([each["event"] for each in self.events()], ["started", "stopped"])

    def test_aFileThatCannotBeOpenedEndsTheStart(self) -> None:
        self.path.mkdir()
        context: Any = SimpleNamespace(reactor=ReactorAtOnce())
        choices = Choices(str(self.path / "new"))
        self.path.rmdir()
        error = self.assertRaises(SettingError, AuditTrail(context, choices).startService)
        self.assertIn("but cannot be opened: No such file or directory", str(error))
