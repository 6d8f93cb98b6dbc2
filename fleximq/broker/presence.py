"""Presence: joins, leaves and new topics as ordinary publications of the broker.

``$sys/clients/joined`` and ``$sys/clients/left`` carry a map with ``client_id``, ``dialect`` and ``name`` (and
``reason``), ``$sys/topics/created`` a map with ``topic``. Topics without subscribers are not created.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgpack
from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.interfaces import IBrokerObserver
from fleximq.values.message import Content, Message

JOINED = "$sys/clients/joined"
LEFT = "$sys/clients/left"
CREATED = "$sys/topics/created"


class OwnMessages(MessageSource):
    """The source of the broker's own publications: a body is one message."""

    def messages(self, body: Message) -> Sequence[Message]:
        return (body,)

    def pick(self, body: Message, places: Sequence[int]) -> Message:
        return body


OWN_MESSAGES = OwnMessages()


@implementer(IBrokerObserver)
@dataclass(eq=False, repr=False)
class Presence:
    """Publishes events as the broker, through ``publish``."""

    _topics: TopicTable
    _broker: ConnectedClient
    _publish: Callable[[Envelope, Any, int], None]

    def clientJoined(self, client: ConnectedClient) -> None:
        if client.isDelegate:
            return
        self._announce(JOINED, {"client_id": client.id, "dialect": client.dialect, "name": client.name})

    def clientLeft(self, client: ConnectedClient, reason: str) -> None:
        if client.isDelegate:
            return
        self._announce(LEFT, {"client_id": client.id, "dialect": client.dialect, "name": client.name, "reason": reason})

    def topicCreated(self, name: str) -> None:
        self._announce(CREATED, {"topic": name})

    def counted(self, event: str, number: int) -> None:
        """Ignore counts, which are not presence."""

    def _announce(self, name: str, value: dict[str, object]) -> None:
        if self._topics.hasSubscribers(name):
            self._publish(
                Envelope(self._topics.get(name), self._broker, OWN_MESSAGES),
                Message(msgpack.packb(value), Content.MESSAGEPACK),
                1,
            )
