"""Brokers that cannot be reached, are not to be trusted or refuse: reading and writing say the same, and in time."""

from __future__ import annotations

import shutil
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blocking import connect
from fleximq.client.errors import Untrusted
from fleximq.pipeline.broker_link import BrokerAddress
from fleximq.pipeline.errors import BrokerGone, BrokerRefused, PipelineError
from tests.broker_process import BrokerProcess
from tests.certificates import Made, makeCertificate
from tests.client.scripted import Peer, Scripted
from tests.pipeline.installed import missing as skip
from tests.pipeline.relay import Relay
from tests.pipeline.started_broker import startBroker

if not skip:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from fleximq.pipeline.files.selection import Selection, Slice
    from fleximq.pipeline.reader.broker_journal import RemoteJournal, readRemote
    from fleximq.pipeline.writer.sink import BatchSink

#: How much of the journal is read: more than one answer has.
ROWS = 60_000


class ReachingCase(SynchronousTestCase):
    """Brokers, relays and certificates in a folder; ways to read and to write."""

    def setUp(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fleximq-reaching-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def start(self, journal: str = "journal", port: int = 0) -> BrokerProcess:
        """Start a broker that ends with the test."""
        return startBroker(self, self.folder / journal, port=port)

    def relay(self, *about: Any) -> Relay:
        """Start a relay that ends with the test."""
        relay = Relay(*about)
        self.addCleanup(relay.__exit__, None, None, None)
        return relay.__enter__()

    def fill(self, broker: BrokerProcess) -> None:
        """Publish rows that take several answers."""
        with connect(f"tcp://127.0.0.1:{broker.port()}") as client:
            client.publish_many("t", (b"%0100d" % number for number in range(ROWS)))
            client.flush()

    def slices(self, options: dict[str, str]) -> list[Slice]:
        """Return what there is to read."""
        journal = RemoteJournal(BrokerAddress.of(options))
        try:
            return journal.slices(0, journal.end().offset)
        finally:
            journal.close()

    def read(self, options: dict[str, str], slices: list[Slice] | None = None) -> list[int]:
        """Return all offsets, as the driver and a task do it."""
        found: list[int] = []
        for part in self.slices(options) if slices is None else slices:
            for batch in readRemote(part, BrokerAddress.of(options), ("offset",), Selection(), self.fail):
                found += batch.column("offset").to_pylist()
        return found

    def write(self, options: dict[str, str]) -> None:
        """Write a row, as the driver and a task do it."""
        sink = BatchSink(options, StructType().add("topic", "string").add("value", "binary"))
        rows = pa.record_batch({"topic": ["w"], "value": [b"x"]})
        sink.commit([sink.write(iter([rows]))])

    def refused(self, kind: type[PipelineError], options: Mapping[str, str]) -> str:
        """Return the sentence that both ways end with."""
        said = set()
        for way in (self.read, self.write):
            said.add(str(self.assertRaises(kind, way, options)))
        [sentence] = said
        return sentence


class TlsTests(ReachingCase):
    """A broker behind TLS."""

    def setUp(self) -> None:
        super().setUp()
        self.broker = self.start()
        self.made = self.certificate("localhost")

    def certificate(self, name: str, folder: str = "") -> Made:
        """Make a certificate."""
        parent = self.folder / (folder or name)
        parent.mkdir()
        return makeCertificate(parent, name)

    def serving(self, made: Made, clients: Made | None = None) -> dict[str, str]:
        """Return options for a relay that shows a certificate, and wants to see one that it trusts."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(made.certificate, made.key)
        if clients is not None:
            context.load_verify_locations(clients.certificate)
            context.verify_mode = ssl.CERT_REQUIRED
        self.between = self.relay(self.broker.port(), context)
        return {"url": f"tls://localhost:{self.between.port}"}

    def test_trustedBrokerIsReadAndWritten(self) -> None:
        options = self.serving(self.made) | {"caFile": str(self.made.certificate)}
        self.write(options)
        self.assertEqual(len(self.read(options)), 1)

    def test_brokerOfAnotherAuthorityIsRefusedAtOnce(self) -> None:
        options = self.serving(self.made)
        other = self.certificate("localhost", "other")
        for more in ({"caFile": str(other.certificate)}, {}):
            words = self.refused(BrokerRefused, options | more)
            self.assertTrue(
                words.startswith(f"the broker at {options['url']} and the pipeline do not trust each other")
            )
            self.assertIn("its certificate is not trusted (self-signed certificate)", words)

    def test_certificateForAnotherHostIsRefused(self) -> None:
        made = self.certificate("elsewhere.example")
        options = self.serving(made) | {"caFile": str(made.certificate)}
        self.assertIn("certificate is not valid for 'localhost'", self.refused(BrokerRefused, options))

    def test_clientCertificateIsShown(self) -> None:
        own = self.certificate("pipeline")
        options = self.serving(self.made, own) | {"caFile": str(self.made.certificate)}
        shown = {"certFile": str(own.certificate), "keyFile": str(own.key)}
        self.write(options | shown)
        self.assertEqual(len(self.read(options | shown)), 1)
        self.assertIn("pipeline", str(self.between.certificates[0]))

    def test_missingOrOtherClientCertificateIsToldAtOnce(self) -> None:
        own, other = self.certificate("pipeline"), self.certificate("pipeline", "other")
        options = self.serving(self.made, own) | {"caFile": str(self.made.certificate)}
        for more in ({}, {"certFile": str(other.certificate), "keyFile": str(other.key)}):
            for way in (self.read, self.write):
                words = str(self.assertRaises(BrokerRefused, way, options | more))
                self.assertIn("it does not trust this client's certificate, or requires one", words)

    def test_clientItselfSaysThatACertificateIsRequired(self) -> None:
        options = self.serving(self.made, self.made)
        self.assertRaisesRegex(Untrusted, "requires one", connect, options["url"], tls=self.made.trusting())


class TokenTests(ReachingCase):
    """A broker that looks at tokens."""

    def test_wrongTokenIsRefusedAtOnceAndNotShown(self) -> None:
        joins = []

        def script(peer: Peer) -> None:
            joins.append(peer.hear("JOIN"))
            peer.say("REP", 0, {"status": 604}, "no such token")

        for way in (self.read, self.write):
            with Scripted(script) as url:
                error = self.assertRaises(BrokerRefused, way, {"url": url, "token": "s3cret"})
            words = f"the broker at {url} does not let the pipeline in: 604 authentication failed: no such token"
            self.assertEqual(str(error), words)
        self.assertEqual([join.header["auth"] for join in joins], [{"type": "token", "token": "s3cret"}] * 2)


class AwayTests(ReachingCase):
    """A broker that is not there, for a while or longer."""

    def port(self) -> int:
        """Return a port on which nobody listens."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            return int(server.getsockname()[1])

    def during(self, work: Callable[[], object]) -> None:
        """Do something in a thread that ends with the test."""
        thread = threading.Thread(target=work)
        thread.start()
        self.addCleanup(thread.join, 300)

    def test_absentBrokerIsWaitedFor(self) -> None:
        port = self.port()
        options = {"url": f"tcp://127.0.0.1:{port}", "brokerTimeout": "300"}
        self.during(partial(self.start, port=port))
        self.write(options)
        self.assertEqual(len(self.read(options)), 1)

    def test_absenceOverTheTimeoutIsAnErrorWithTheLastReason(self) -> None:
        url = f"tcp://127.0.0.1:{self.port()}"
        words = self.refused(BrokerGone, {"url": url, "brokerTimeout": "0.3"})
        self.assertEqual(words, f"the broker at {url} is away: cannot connect to {url}: Connection refused")

    def test_cutConnectionLosesAndRepeatsNoRow(self) -> None:
        broker = self.start()
        self.fill(broker)
        for after in (1_000, 3_000_000, 6_000_000):
            relay = self.relay(broker.port(), None, after)
            self.assertEqual(self.read({"url": f"tcp://127.0.0.1:{relay.port}"}), list(range(1, ROWS + 1)))
            self.assertEqual(relay.cuts, 1)

    def test_killedBrokerLosesAndRepeatsNoRow(self) -> None:
        broker = self.start()
        self.fill(broker)
        port = broker.port()
        options = {"url": f"tcp://127.0.0.1:{port}", "brokerTimeout": "300"}
        [part] = self.slices(options)
        found: list[int] = []
        for batch in readRemote(part, BrokerAddress.of(options), ("offset",), Selection(), self.fail):
            if not found:
                broker.stop(9)
                self.during(partial(self.start, port=port))
            found += batch.column("offset").to_pylist()
        self.assertEqual(found, list(range(1, ROWS + 1)))

    def test_brokerThatStaysAwayEndsTheReading(self) -> None:
        """One that does not come back ends the reading with its sentence; what was given before was right."""
        broker = self.start()
        self.fill(broker)
        # About half of it, whatever is read ahead.
        relay = self.relay(broker.port(), None, 3_000_000, True)
        place = BrokerAddress.of({"url": f"tcp://127.0.0.1:{relay.port}", "brokerTimeout": "0.3"})
        [part] = self.slices({"url": f"tcp://127.0.0.1:{broker.port()}"})
        found: list[int] = []

        def read() -> None:
            for batch in readRemote(part, place, ("offset",), Selection(), self.fail):
                found.extend(batch.column("offset").to_pylist())

        self.assertRaises(BrokerGone, read)
        self.assertEqual(found, list(range(1, len(found) + 1)))
        self.assertLess(len(found), ROWS)

    def otherJournals(self) -> tuple[BrokerProcess, Relay, dict[str, str]]:
        """Return another broker, a relay to a first one, and the options for the relay; both have journals."""
        one, other = self.start(), self.start("other")
        for broker in (one, other):
            self.fill(broker)
        relay = self.relay(one.port())
        return other, relay, {"url": f"tcp://127.0.0.1:{relay.port}"}

    def test_otherJournalOfTheSameUrlIsNotRead(self) -> None:
        other, relay, options = self.otherJournals()
        slices = self.slices(options)
        journal = RemoteJournal(BrokerAddress.of(options))
        self.addCleanup(journal.close)
        relay.target = other.port()
        relay.cut()
        error = self.assertRaises(BrokerRefused, self.read, options, slices)
        self.assertIn(f"the broker at {options['url']} has the journal ", str(error))
        self.assertIn(f"now, not {journal.id} any more", str(error))
        self.assertIn(f"now, not {journal.id} any more", str(self.assertRaises(BrokerRefused, journal.end)))

    def test_otherJournalBetweenTwoAnswersIsNotRead(self) -> None:
        other, relay, options = self.otherJournals()
        [part] = self.slices(options)
        batches = readRemote(part, BrokerAddress.of(options), ("offset",), Selection(), self.fail)
        next(batches)
        relay.target = other.port()
        relay.cut()
        self.assertRaisesRegex(BrokerRefused, f"now, not {part.journal} any more", list, batches)
