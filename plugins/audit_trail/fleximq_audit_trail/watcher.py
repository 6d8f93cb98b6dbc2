"""Looks on at what happens in the broker, and makes a line of JSON of it."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from zope.interface import implementer

from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.interfaces import IBrokerObserver, IForm, ISubscriber
from fleximq.wire.payload_conversion import toText

#: Of a payload, at most so many characters are written.
LONGEST = 4096


@implementer(IBrokerObserver, ISubscriber, IForm)
class Watcher:
    """Is told of joins and leaves as an observer, and takes publications as a subscriber of its own form.

    :param take: is given each line.
    :param now: tells the time.
    :param payloads: write what was published, too.
    """

    def __init__(self, take: Callable[[str], None], now: Callable[[], datetime], payloads: bool = False) -> None:
        self.form = self
        self._take = take
        self._now = now
        self._payloads = payloads

    def say(self, event: str, **fields: object) -> None:
        """Write down an event, with the time."""
        self._take(self.line(event, **fields))

    def line(self, event: str, **fields: object) -> str:
        """Return the line for an event, with the time."""
        time = self._now().isoformat(timespec="milliseconds")
        return json.dumps({"time": time, "event": event, **fields}, ensure_ascii=False) + "\n"

    # What an observer is told

    def clientJoined(self, client: ConnectedClient) -> None:
        """Write down a join: who, and from where. What it proved that with is not looked at."""
        self.say("joined", **_who(client), address=client.address, principal=client.principal)

    def clientLeft(self, client: ConnectedClient, reason: str) -> None:
        """Write down a leave, and why."""
        self.say("left", **_who(client), reason=reason)

    def topicCreated(self, name: str) -> None:
        """Topics are met when something is published."""

    def counted(self, event: str, number: int) -> None:
        """Counts are for metrics."""

    # What a subscriber and its form do

    def render(self, envelope: Envelope, body: Any, count: int) -> str:
        """Return the line for a run of publications: one, however many messages they are."""
        messages = envelope.source.messages(body)
        fields: dict[str, object] = {
            "topic": envelope.topic.name,
            **_who(envelope.publisher),
            "count": count,
            "size": sum(len(message.payload) for message in messages),
        }
        if self._payloads:
            fields["payloads"] = [toText(message)[:LONGEST] for message in messages]
        return self.line("published", **fields)

    def deliver(self, rendered: str, count: int) -> None:
        """Write it down."""
        self._take(rendered)


def _who(client: ConnectedClient) -> dict[str, object]:
    return {"client_id": client.id, "name": client.name, "dialect": client.dialect}
