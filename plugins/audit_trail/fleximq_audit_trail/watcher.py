"""Observes the broker, and formats its events as lines of JSON."""

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

from zope.interface import implementer

from fleximq.api import ConnectedClient, Envelope, IBrokerObserver, IForm, ISubscriber, toText

LONGEST = 4096  #: Maximum length of a recorded payload in characters.


@implementer(IBrokerObserver, ISubscriber, IForm)
class Watcher:
    """Receives joins and leaves as an observer, and publications as a subscriber with its own form.

    ``take`` is called with each line, ``now`` returns the time, and ``payloads`` includes the published payloads.
    """

    def __init__(self, take: Callable[[str], None], now: Callable[[], datetime], payloads: bool = False) -> None:
        self.form = self
        self._take = take
        self._now = now
        self._payloads = payloads

    def say(self, event: str, **fields: object) -> None:
        """Record an event."""
        self._take(self.line(event, **fields))

    def line(self, event: str, **fields: object) -> str:
        """Return the line for an event, with the time."""
        time = self._now().isoformat(timespec="milliseconds")
        return json.dumps({"time": time, "event": event, **fields}, ensure_ascii=False) + "\n"

    def clientJoined(self, client: ConnectedClient) -> None:
        """Record the client and its address, but not its credentials."""
        self.say("joined", **_who(client), address=client.address, principal=client.principal)

    def clientLeft(self, client: ConnectedClient, reason: str) -> None:
        self.say("left", **_who(client), reason=reason)

    def topicCreated(self, name: str) -> None:
        """Ignored: publications show their topics."""

    def counted(self, event: str, number: int) -> None:
        """Ignored: counts are for metrics."""

    def render(self, envelope: Envelope, body: Any, count: int) -> str:
        """Return one line for a run of publications."""
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
        self._take(rendered)


def _who(client: ConnectedClient) -> dict[str, object]:
    return {"client_id": client.id, "name": client.name, "dialect": client.dialect}
