"""Small parts that stand in for dialects in the tests of the broker."""

from collections.abc import Callable, Sequence
from typing import Any

import msgpack
from twisted.internet.task import Clock
from zope.interface import implementer

from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.paths import path_table
from fleximq.broker.rules import BrokerRules
from fleximq.errors import BrokerError
from fleximq.interfaces import IBrokerObserver, IForm, IJournal, IPeer, ISubscriber
from fleximq.journal.memory_journal import MemoryJournal
from fleximq.values.message import Content, Message


def raising(error: Exception) -> None:
    """Raise what was caught, so that a test sees it."""
    raise error


def ask(broker: Broker, client: ConnectedClient, path: str, arguments: Any, answer: Callable[[Any], None]) -> None:
    """Ask a broker path as a connection does, with the arguments in MessagePack."""
    packed = msgpack.packb(arguments) if arguments is not None else b""
    path_table.answer(broker, client, path, path_table.readArguments(broker, client, path, packed), answer)


def askAt(broker: Broker, path: str, arguments: Any) -> Any:
    """Return the answer of a broker path that answers at once, after it went through MessagePack."""
    answers: list[Any] = []
    ask(broker, broker.brokerClient, path, arguments, answers.append)
    [answer] = answers
    if isinstance(answer, BrokerError):
        raise answer
    return msgpack.unpackb(msgpack.packb(answer))


def makeBroker(
    clock: Clock,
    journal: IJournal | None = None,
    onError: Callable[[Exception], None] = raising,
    wall: Callable[[], float] | None = None,
    make: Callable[..., Broker] = Broker,
    **rules: Any,
) -> Broker:
    """Return a broker on this clock, by default its wall clock too; further keywords are fields of its rules."""
    numbers = iter(range(1 << 30))
    return make(
        clock=clock,
        journal=journal if journal is not None else MemoryJournal(),
        randomHex=lambda digits: f"{next(numbers):0{digits}x}",
        idOf=lambda message: message.message_id or f"id-{next(numbers)}",
        onError=onError,
        rules=BrokerRules(**rules),
        dialects=("fleximq", "blipmq", "minimq", "identity"),
        wall=wall or clock.seconds,
    )


@implementer(IForm)
class AsMessages:
    """Whole messages; ``rendered`` counts the runs that were rendered."""

    def __init__(self) -> None:
        self.rendered = 0

    def render(self, envelope: Envelope, body: Any, count: int) -> Sequence[Message]:
        """Return the messages of the run."""
        self.rendered += 1
        return envelope.source.messages(body)


@implementer(ISubscriber)
class Collector:
    """A subscriber that keeps what it gets; ``counts`` holds the sizes of the runs."""

    def __init__(self, form: AsMessages | None = None) -> None:
        self.form = form or AsMessages()
        self.messages: list[Message] = []
        self.counts: list[int] = []

    def deliver(self, rendered: Sequence[Message], count: int) -> None:
        """Keep a run."""
        self.messages += rendered
        self.counts.append(count)

    def payloads(self) -> list[bytes]:
        """Return the payloads of everything it got."""
        return [message.payload for message in self.messages]


@implementer(IPeer, ISubscriber)
class Friend(Collector):
    """A peer that keeps what it is told: direct messages in ``told``, failures in ``failures``, ``done`` counted."""

    def __init__(self, form: AsMessages | None = None) -> None:
        super().__init__(form)
        self.told: list[Any] = []
        self.failures: list[tuple[str, str, int]] = []
        self.done = 0

    def forward(self, message: Any) -> None:
        """Keep a direct message."""
        self.told.append(message)

    def receiveBroadcast(self, message: Any) -> None:
        """Keep a broadcast."""
        self.told.append(message)

    def requestFailed(self, id: str, path: str, status: int, words: str) -> None:
        """Keep a failure."""
        self.failures.append((id, path, int(status)))

    def requestDone(self) -> None:
        """Count the end of a request."""
        self.done += 1


@implementer(IBrokerObserver)
class Witness:
    """An observer that keeps what it is told, in ``told``."""

    def __init__(self) -> None:
        self.told: list[tuple[Any, ...]] = []

    def clientJoined(self, client: ConnectedClient) -> None:
        """Keep a join."""
        self.told.append(("joined", client.id))

    def clientLeft(self, client: ConnectedClient, reason: str) -> None:
        """Keep a leave."""
        self.told.append(("left", client.id, reason))

    def topicCreated(self, name: str) -> None:
        """Keep a new topic."""
        self.told.append(("created", name))

    def counted(self, event: str, number: int) -> None:
        """Keep a count."""
        self.told.append(("counted", event, number))


def text(*contents: str) -> list[Message]:
    """Return a body of messages with these texts."""
    return [Message(each.encode(), Content.TEXT) for each in contents]


def turn(clock: Clock) -> bool:
    """Run what is due, but unlike :meth:`Clock.advance` not what is added meanwhile; False if nothing was due."""
    due = [call for call in clock.calls if call.getTime() <= clock.seconds()]
    for call in due:
        if call in clock.calls:
            clock.calls.remove(call)
            call.called = 1
            call.func(*call.args, **call.kw)
    return bool(due)
