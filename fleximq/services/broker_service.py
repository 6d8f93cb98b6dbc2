"""The broker as a service, built from the settings and stopped with the process."""

import secrets
import time
from collections.abc import Callable, Sequence
from typing import Any

from twisted.application.service import MultiService
from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq import __version__
from fleximq.broker.broker import Broker
from fleximq.broker.rules import BrokerRules
from fleximq.broker.schedules.repeat import Repeat
from fleximq.compiled.choice import IMPLEMENTATION
from fleximq.config.journal_options import retentionOf, timeToLiveOf
from fleximq.config.schema_options import schemaOf
from fleximq.config.settings import Settings
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.errors import BrokerError, SettingError
from fleximq.interfaces import IJournal
from fleximq.schemas.payload_checks import PayloadChecks
from fleximq.services.audit_log import AuditLog, NoAuditLog
from fleximq.services.network.connections import OpenConnections
from fleximq.services.network.open_files import withinOpenFiles
from fleximq.services.queue_warnings import QueueWarnings
from fleximq.values.message import Content, Message
from fleximq.values.records import DIALECTS, contentOf
from fleximq.wire.minimq_message import deliveryId
from fleximq.wire.ulids import idAt, newUlid

_log = Logger()


def makeBroker(
    clock: IReactorTime,
    settings: Settings,
    turn: WriteTurn,
    journal: IJournal,
    dialects: Sequence[str] = (),
    wall: Callable[[], float] = time.time,
    make: Callable[..., Broker] = Broker,
    audit: AuditLog | NoAuditLog | None = None,
) -> Broker:
    """Return a broker with these settings, which ``make`` constructs; the other arguments are as for a Broker."""
    broker = make(
        clock=clock,
        journal=journal,
        randomHex=lambda digits: secrets.token_hex((digits + 1) // 2)[:digits],
        # The id of a message for MiniMQ clients is stable across restarts.
        idOf=lambda each: deliveryId(each, lambda: idAt(journal.id, each.offset) if each.offset else newUlid()),
        onError=lambda error: _log.failure("An observer or a timed action failed", failure=Failure(error)),
        rules=rulesOf(settings),
        afterwards=turn.flush,
        publishing=turn.publishing,
        dialects=dialects,
        implementation=IMPLEMENTATION,
        wall=wall,
        audit=(audit or NoAuditLog()).record,
    )
    QueueWarnings(clock, settings).watch(broker)
    checkQueues(broker, settings)
    if settings.schema:
        broker.setSchemas(checksOf(settings).of)
    broker.queueSettings.settle(settings.queues)
    broker.schedules.settle(repeatsOf(settings, broker))
    return broker


def checkQueues(broker: Broker, settings: Settings) -> None:
    """Raise SettingError if the broker cannot have the queues of the settings."""
    try:
        broker.queueSettings.check(settings.queues)
    except BrokerError as error:
        raise SettingError(f"queues: {error}") from error


def checksOf(settings: Settings) -> PayloadChecks:
    """Return the checks of publications by the schemas of the settings; raises SettingError for a file."""
    return PayloadChecks([schemaOf(line) for line in settings.schema])


def repeatsOf(settings: Settings, broker: Broker) -> list[Repeat]:
    """Return the recurring schedules of the settings, as definitions that begin now; the broker publishes them."""
    client, now = broker.brokerClient, broker.schedules.now()
    return [
        Repeat(
            name=table.name,
            topic=table.topic,
            payload=table.payload,
            header=table.header,
            content=contentOf(Message(b"", Content.MESSAGEPACK)),
            publisher=(client.id, client.name, DIALECTS["fleximq"]),
            start=now,
            since=now,
            every=table.every,
            cron=table.cron,
            timezone=table.timezone,
            catchUp=table.catchUp,
            paused=table.paused,
            isSetting=True,
        )
        for table in settings.schedules
    ]


def rulesOf(settings: Settings) -> BrokerRules:
    """Return the times and sizes that the broker's rules need."""
    return BrokerRules(
        requestTimeout=settings.requestTimeout,
        redelivery=settings.redelivery,
        maxDeliveries=settings.maxDeliveries,
        grace=settings.subscriptionGrace,
        queueExpiry=settings.queueExpiry,
        echoBroadcast=settings.bcastEcho,
        durable=settings.durable,
        retain=settings.retain,
        timesToLive=tuple(timeToLiveOf(line) for line in settings.messageTtl),
        retentions=tuple((rule.pattern, rule.age) for rule in map(retentionOf, settings.retention)),
        idempotenceWindow=settings.idempotenceWindow,
        deduplicatedDialects=("fleximq", "minimq") if settings.minimqIdempotent else ("fleximq",),
        durableGrace=settings.durableGrace,
        history=settings.history,
        limits=withinOpenFiles(settings),
    )


class BrokerService(MultiService):
    """Holds the extensions. On stop, connections end within ``timeout`` seconds, then the extensions, then timers."""

    def __init__(self, broker: Broker, connections: OpenConnections, timeout: Callable[[], float]) -> None:
        super().__init__()
        self.broker = broker
        self._connections = connections
        self._timeout = timeout

    def startService(self) -> None:
        words = "FlexiMQ {version} ({implementation})"
        _log.info(words, version=__version__, implementation=self.broker.implementation)
        super().startService()

    def stopService(self) -> "Deferred[Any]":
        """Dismiss all clients, stop the extensions, then cancel all timers."""
        stopping: Deferred[Any] = self._connections.drain(self._timeout())
        stopping.addCallback(lambda ignored: maybeDeferred(MultiService.stopService, self))
        return stopping.addBoth(lambda ignored: self.broker.stop())
