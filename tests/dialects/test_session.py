"""What all sessions share, shown on a dialect that only echoes."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from twisted.internet.address import IPv4Address
from twisted.internet.task import Clock
from twisted.internet.testing import StringTransport
from twisted.logger import LogEvent, LogLevel, formatEvent
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.connection_state import ConnectionState
from fleximq.dialects.connection.read_pauses import ReadPause, ReadPauses
from fleximq.dialects.outbox import Outbox
from fleximq.dialects.session import LINGER, Session
from fleximq.errors import BadRequest, BrokerError, NoCapacity, TooLarge
from fleximq.limits import Limits
from fleximq.rights import EVERYTHING
from fleximq.security.principal import Admitted, Principal
from fleximq.values.connection_load import ConnectionLoad
from tests.dialects.admissions import REFUSAL, REFUSING, FakeAdmission
from tests.dialects.conversations import makeContext
from tests.log_observer import observeLog

SOMEBODY, NOBODY = Admitted(Principal("somebody"), EVERYTHING), Admitted(None, EVERYTHING)


class Echo(Session):
    """Answers errors by their status."""

    dialect = "echo"
    hasLeft = 0

    def answerError(self, error: BrokerError) -> None:
        """Say the status."""
        self.outbox.take(b"%d;" % int(error.status))

    def left(self) -> None:
        """Count."""
        self.hasLeft += 1


class SessionTests(SynchronousTestCase):
    """States, deadlines, errors, counting."""

    def setUp(self) -> None:
        """A broker that takes two clients, and a session."""
        self.clock = Clock()
        self.context = makeContext(self.clock, handshakeTimeout=5.0, limits=Limits(clients=2))
        self.session = self.make()

    def make(self) -> Echo:
        """Return a session on a string of its own."""
        self.transport = StringTransport(lenient=True)
        outbox = Outbox(self.transport, self.context.turn, 1000, lambda: None)
        return Echo(self.context, outbox, IPv4Address("TCP", "127.0.0.1", 5))

    def counted(self) -> dict[str, int]:
        """Return what was counted."""
        return dict(self.context.broker.counts.events)

    def test_letIn(self) -> None:
        """Letting in opens the session, registers a client and stops the clock."""
        client = self.session.letIn(SOMEBODY)
        self.assertEqual((self.session.state, self.session.client), (ConnectionState.OPEN, client))
        self.assertEqual((client.dialect, client.principal, client.peer), ("echo", "somebody", None))
        self.assertEqual(client.address, "127.0.0.1:5")
        self.clock.advance(100)
        self.assertFalse(self.transport.disconnecting)

    def test_load(self) -> None:
        """A session tells what it has carried, and what holds it up."""
        session = self.session
        session.letIn(SOMEBODY)
        session.traffic.bytesIn, session.traffic.messagesOut = 5, 7
        self.assertEqual(session.load(), ConnectionLoad(5, 0, 0, 7, 0, session.outbox.limit))
        protocol: Any = SimpleNamespace(readPauses=ReadPauses(self.transport, lambda isRead: None))
        session.protocol = protocol
        protocol.readPauses.pause(ReadPause.OVERLOADED)
        session.outbox.pauseProducing()
        session.outbox.take(b"x" * 30)
        load = session.load()
        self.assertEqual(load.unread, 30)
        unread, paused = load.slow
        self.assertEqual(unread, f"it does not read: 30 bytes of at most {session.outbox.limit} wait")
        self.assertEqual(paused, f"the broker does not read from it: {ReadPause.OVERLOADED.value}")

    def test_principal(self) -> None:
        """The log says under which name a client has logged in; without a login it has the client's name alone."""
        for admitted, joined, left in (
            (SOMEBODY, "echo-1000 joined as somebody from 127.0.0.1:5", "echo-1000 (somebody) left: over"),
            (NOBODY, "echo-1001 joined from 127.0.0.1:5", "echo-1001 left: over"),
        ):
            logged: list[LogEvent] = []
            observeLog(self, logged.append)
            session = self.make()
            session.letIn(admitted)
            session.end("over")
            session.lost()
            self.assertEqual(
                [formatEvent(each) for each in logged if each.get("log_level") is LogLevel.info], [joined, left]
            )

    def test_full(self) -> None:
        """A full broker lets nobody in, and the session stays as it was."""
        self.session.letIn(NOBODY)
        self.make().letIn(NOBODY)
        late = self.make()
        self.assertRaises(NoCapacity, late.letIn, NOBODY)
        self.assertEqual((late.state, late.client), (ConnectionState.WAITING, None))

    def test_fullAudited(self) -> None:
        """The audit log has who was refused because there are too many clients, with the name of the credentials."""
        written: list[tuple[str, Any, Any]] = []

        def audit(event: str, *rest: object, **fields: Any) -> None:
            written.append((event, fields["principal"], fields.get("reason")))

        self.patch(self.context.broker, "audit", audit)
        for _ in range(2):
            self.make().letIn(NOBODY)
        late = self.make()
        for each in (SOMEBODY, NOBODY):
            late.failed(self.assertRaises(NoCapacity, late.letIn, each))
        full = "the broker has as many clients as it may"
        self.assertEqual(written[2:], [("refused", "somebody", full), ("refused", None, full)])

    def test_deadline(self) -> None:
        """The handshake's deadline ends it."""
        self.session.awaitHandshake(0.0)
        self.clock.advance(4.9)
        self.assertFalse(self.transport.disconnecting)
        self.clock.advance(0.2)
        self.assertTrue(self.transport.disconnecting)
        self.assertIs(self.session.state, ConnectionState.ENDING)

    def test_cameAt(self) -> None:
        """The deadline counts from when the connection came, if that is told; it may be over already."""
        self.clock.advance(3)
        self.session = self.make()
        self.session.awaitHandshake(0.0)
        self.clock.advance(1.9)
        self.assertFalse(self.transport.disconnecting)
        self.clock.advance(0.2)
        self.assertTrue(self.transport.disconnecting)
        self.session = self.make()
        self.session.awaitHandshake(0.0)
        self.clock.advance(0)
        self.assertTrue(self.transport.disconnecting)

    def test_cameAtWhenOpen(self) -> None:
        """Who is in already has no deadline."""
        self.session.letIn(NOBODY)
        self.session.awaitHandshake(-100.0)
        self.clock.advance(100)
        self.assertFalse(self.transport.disconnecting)

    def test_reserved(self) -> None:
        """Who was asked to come gets the id that is reserved for it."""
        id = self.context.broker.reserve()
        self.make().letIn(NOBODY)
        self.context = replace(self.context, reserved=id)
        client = self.make().letIn(SOMEBODY)
        self.assertEqual((client.id, client.name), (id, f"echo-{id}"))

    def test_end(self) -> None:
        """The end sends what waits, and only its first reason counts."""
        self.session.letIn(NOBODY)
        self.session.outbox.take(b"bye")
        self.session.end("one reason")
        self.session.end("another")
        self.session.abort("third")
        self.assertEqual((self.transport.value(), self.transport.disconnecting), (b"bye", True))
        self.assertFalse(self.transport.disconnected)
        self.session.lost()
        self.assertEqual(self.counted()["left: one reason"], 1)

    def test_abort(self) -> None:
        """An abort drops what waits."""
        self.session.outbox.take(b"bye")
        self.session.abort("reason")
        self.context.turn.flush()
        self.assertEqual((self.transport.value(), self.transport.disconnected), (b"", True))

    def test_linger(self) -> None:
        """A closing connection that does not end is aborted; one that ends is not."""
        self.session.end("reason")
        self.clock.advance(LINGER - 0.1)
        self.assertFalse(self.transport.disconnected)
        self.clock.advance(0.2)
        self.assertTrue(self.transport.disconnected)

    def test_noLingerWhenLost(self) -> None:
        """When the connection is gone nothing is left to do."""
        self.session.end("reason")
        self.session.lost()
        self.clock.advance(LINGER + 1)
        self.assertFalse(self.transport.disconnected)
        self.assertEqual(len(self.context.broker.deadlines), 0)

    def test_lost(self) -> None:
        """A lost connection leaves the broker, once."""
        self.session.letIn(NOBODY)
        for _ in range(2):
            self.session.lost()
        self.assertEqual((self.session.state, self.session.hasLeft), (ConnectionState.CLOSED, 1))
        self.assertEqual(self.counted(), {"joined: echo": 1, "left: connection lost": 1})
        self.assertEqual(len(self.context.broker.clients), 0)

    def test_lostBeforeTheHandshake(self) -> None:
        """One that was never let in is counted apart."""
        self.session.lost()
        self.assertEqual(self.counted(), {"not let in: connection lost": 1})

    def test_nothingAfterLost(self) -> None:
        """Nothing ends twice."""
        self.session.lost()
        self.session.end("late")
        self.session.abort("late")
        self.assertIs(self.session.state, ConnectionState.CLOSED)
        self.assertEqual(len(self.context.broker.deadlines), 0)

    def test_failed(self) -> None:
        """An error is counted and answered; the connection ends if it says so."""
        self.session.letIn(NOBODY)
        self.session.failed(BadRequest("so"))
        self.assertIs(self.session.state, ConnectionState.OPEN)
        self.session.failed(TooLarge("so"))
        self.assertIs(self.session.state, ConnectionState.ENDING)
        self.assertEqual(self.transport.value(), b"400;413;")
        self.assertEqual((self.counted()["error: 400"], self.counted()["error: 413"]), (1, 1))
        self.session.lost()
        self.assertEqual(self.counted()["left: error 413"], 1)

    def test_slow(self) -> None:
        """A slow consumer is aborted, with its reason."""
        self.session.letIn(NOBODY)
        self.session.slow()
        self.assertTrue(self.transport.disconnected)
        self.session.lost()
        self.assertEqual(self.counted()["left: slow consumer"], 1)

    def test_inputEnded(self) -> None:
        """A peer that will say no more is closed."""
        self.session.letIn(NOBODY)
        self.session.inputEnded()
        self.assertTrue(self.transport.disconnecting)

    def test_manyJoins(self) -> None:
        """A hundred lines a second tell of clients that join and that leave; the next second says how many more did."""
        self.context = makeContext(self.clock)
        lines: list[LogEvent] = []
        observeLog(self, lines.append)
        for _ in range(2):
            for _ in range(120):
                session = self.make()
                session.letIn(NOBODY)
                session.lost()
            self.clock.advance(1)
        for event in ("joined", "left"):
            found = [line["more"] for line in lines if line.get("event") == event]
            self.assertEqual(found, [*[""] * 100, " (20 more lines left out)", *[""] * 99])

    def test_longError(self) -> None:
        """The log has 400 characters of an error."""
        lines: list[LogEvent] = []
        observeLog(self, lines.append)
        self.session.counted(BadRequest("x" * 60_000))
        self.assertEqual([len(line["error"]) for line in lines if "error" in line], [400])

    def test_refusedLater(self) -> None:
        """A peer whose address is banned while its credentials are checked is not let in."""
        admission = FakeAdmission({None: None}, refused=REFUSAL, later=True)
        self.context = makeContext(self.clock, admission=admission)
        session, errors = self.make(), list[BrokerError]()
        session.admit(None, lambda admitted: self.fail(str(session.letIn(admitted))), errors.append)
        admission.decide()
        self.assertEqual(([str(each) for each in errors], session.client), ([REFUSAL], None))

    def test_refusal(self) -> None:
        """Whether the peer may come at all is the context's word."""
        self.assertIsNone(self.session.refusal())
        self.context = makeContext(self.clock, admission=REFUSING)
        self.assertIsInstance(self.make().refusal(), str)
