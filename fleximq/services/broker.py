"""The broker as a service: made from the settings, stopped with the process."""

import secrets
from functools import partial

from twisted.application.service import Service
from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger
from twisted.python.failure import Failure

from fleximq.broker.broker import Broker
from fleximq.broker.rules import Rules
from fleximq.dialects.turn import Turn
from fleximq.interfaces import IJournal
from fleximq.journal_options import timeToLiveOf
from fleximq.message import Message
from fleximq.services.guests import Guests
from fleximq.settings import Settings
from fleximq.wire.mini_message import deliveryId, idAt
from fleximq.wire.ulids import newUlid

_log = Logger()


def makeBroker(clock: IReactorTime, settings: Settings, turn: Turn, journal: IJournal) -> Broker:
    """Return a broker that follows these settings."""
    return Broker(
        clock,
        journal,
        randomHex=_randomHex,
        idOf=partial(_idOf, journal),
        onError=_failed,
        rules=rulesOf(settings),
        afterwards=turn.flush,
        publishing=turn.publishing,
    )


def rulesOf(settings: Settings) -> Rules:
    """Return the times and sizes that the broker's rules depend on."""
    return Rules(
        requestTimeout=settings.requestTimeout,
        redelivery=settings.redelivery,
        maxDeliveries=settings.maxDeliveries,
        grace=settings.subscriptionGrace,
        queueExpiry=settings.queueExpiry,
        echoBroadcast=settings.bcastEcho,
        durable=settings.durable,
        retain=settings.retain,
        messageTtl=tuple(timeToLiveOf(line) for line in settings.messageTtl),
        idempotenceWindow=settings.idempotenceWindow,
        minimqIdempotent=settings.minimqIdempotent,
        durableGrace=settings.durableGrace,
        history=settings.history,
        limits=settings.limits,
    )


class BrokerService(Service):
    """Ends the broker's connections and then its timers when it is stopped."""

    def __init__(self, broker: Broker, guests: Guests) -> None:
        self.broker = broker
        self._guests = guests

    def stopService(self) -> "Deferred[None]":
        """Say goodbye to everybody, then cancel everything timed."""
        super().stopService()
        return self._guests.dismiss().addCallback(lambda ignored: self.broker.stop())


def _randomHex(digits: int) -> str:
    return secrets.token_hex((digits + 1) // 2)[:digits]


def _idOf(journal: IJournal, message: Message) -> str:
    """Return the id that MiniMQ clients know a message by, after a restart the same."""
    return deliveryId(message, lambda: idAt(journal.id, message.offset) if message.offset else newUlid())


def _failed(error: Exception) -> None:
    _log.failure("An observer or a timed action failed", failure=Failure(error))
