"""Log lines about messages that leave their queue without an acknowledgement, with a limit for each kind of line."""

from typing import Any

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from fleximq.broker.broker import Broker
from fleximq.broker.consumers.polled_subscription import PolledSubscription
from fleximq.broker.consumers.work_queue import WorkQueue
from fleximq.broker.consumers.work_queues import IDLE_SECONDS
from fleximq.config.settings import Settings
from fleximq.values.death import Death
from fleximq.values.death_reason import DeathReason
from fleximq.values.log_limit import LogLimits
from fleximq.values.printable import shortened

_log = Logger()

_EXPIRED = (
    "The queue {topic} was removed with {messages}, since it had no consumer for {time:g} s ({why}); queues "
    "whose topic matches --durable are not removed{more}"
)
_OVERFLOW = (
    "The queue {queue} is full: new messages replace its oldest ones until a consumer takes some (--queue-messages, "
    "--queue-bytes){more}"
)
_SUBSCRIPTION_EXPIRED = (
    "The BlipMQ subscription {id} of {topic} was removed with {messages}, since no client used it for "
    "{time:g} s (--durable-grace){more}"
)
_LETTER = "{letter} of the queue {queue} is a dead letter"
#: By why the message died, so that each kind of line has a limit of its own.
_DEAD_LETTERS = {
    DeathReason.ATTEMPTS: _LETTER + " after {deliveries} deliveries without an ACK{more}",
    DeathReason.REJECTED: _LETTER + ", rejected by {consumer}{more}",
    DeathReason.EXPIRED: _LETTER + ", since it expired{more}",
    DeathReason.TOO_LARGE: _LETTER + ", since it is too large for its consumer{more}",
}


class QueueWarnings:
    """Logs expired queues and subscriptions, full queues and dead letters of the broker that it watches."""

    def __init__(self, clock: IReactorTime, settings: Settings) -> None:
        self._clock = clock
        self._queueExpiry, self._durableGrace = settings.queueExpiry, settings.durableGrace
        self._limits = LogLimits()

    def watch(self, broker: Broker) -> None:
        """Log what happens to the queues of this broker from now on."""
        broker.queues.onExpired = self._expired
        broker.queues.onOverflow = lambda queue: self._warn(_OVERFLOW, queue=queue)
        broker.polledSubscriptions.onExpired = self._subscriptionExpired
        broker.deadLetters.onDeadLetter = self._deadLetter

    def _warn(self, words: str, **fields: Any) -> None:
        more = self._limits[words].ending(self._clock.seconds())
        if more is not None:
            _log.warn(words, more=more, **fields)

    def _expired(self, queue: WorkQueue, number: int) -> None:
        if not number:
            return
        expiry, why = self._queueExpiry, "--queue-expiry" if self._queueExpiry else "a ReplyTo created it"
        if queue.definition is not None and queue.definition.expiry is not None:
            expiry, why = queue.definition.expiry, "its definition"
        fields = {"messages": _messages(number), "number": number, "time": expiry or IDLE_SECONDS}
        self._warn(_EXPIRED, topic=queue.name, why=why, **fields)

    def _subscriptionExpired(self, subscription: PolledSubscription, number: int) -> None:
        if not number or not subscription.durable:
            return
        fields = {"messages": _messages(number), "number": number, "time": self._durableGrace}
        self._warn(_SUBSCRIPTION_EXPIRED, id=subscription.id, topic=subscription.topic, **fields)

    def _deadLetter(self, death: Death, messageId: str | None) -> None:
        letter = "A message" if messageId is None else f"The message {shortened(messageId)}"
        consumer = death.consumer or "a consumer"
        fields = {"queue": death.queue, "deliveries": death.attempts, "consumer": consumer}
        self._warn(_DEAD_LETTERS[death.reason], letter=letter, **fields)


def _messages(number: int) -> str:
    return "1 message" if number == 1 else f"{number} messages"
