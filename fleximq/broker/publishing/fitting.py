"""Refuses publications that do not fit the schema of their topic."""

from collections.abc import Callable, Sequence
from typing import Any

from fleximq.broker.envelope import Envelope, OnDecided
from fleximq.errors import NotKept, Unfit
from fleximq.values.message import Message
from fleximq.values.records import CONTENTS

#: Publishes a run, as :meth:`fleximq.broker.broker.Broker.publish` does.
Publish = Callable[[Envelope, Any, int, OnDecided | None], None]


def publishFitting(envelope: Envelope, body: Any, count: int, onDecided: OnDecided | None, publish: Publish) -> None:
    """Publish the messages of a run that fit the schema of its topic, in the table, and refuse the others.

    :raises Unfit: some messages do not fit; the others were published.
    :raises NotKept: as ``publish`` does, also with the indexes of messages that do not fit.
    """
    unfit = unfitOf(envelope, body)
    if unfit is None:
        publish(envelope, body, count, onDecided)
        return
    refused = set(unfit.refused)
    places = [place for place in range(count) if place not in refused]
    if places:

        def decided(reason: str | None, indexes: Sequence[int]) -> None:
            if onDecided is not None:
                onDecided(reason, [places[index] for index in indexes])

        try:
            publish(envelope, envelope.source.pick(body, places), len(places), decided)
        except NotKept as error:
            raise error.at(sorted({*refused, *(places[index] for index in error.refused)})) from error
    raise unfit


def messageOf(payload: bytes, content: int) -> Message:
    """Return a payload as a message, for a check; ``content`` is the journal's code for its format."""
    return Message(payload, CONTENTS[content][0])


def unfitOf(envelope: Envelope, body: Any) -> Unfit | None:
    """Return the error for messages of a run that do not fit the schema of its topic; None if all do."""
    check = envelope.topic.check
    if check is None:
        return None
    found = {
        place: reason
        for place, message in enumerate(envelope.source.messages(body))
        if (reason := check(message)) is not None
    }
    return Unfit(next(iter(found.values())), [*found], [*found.values()]) if found else None
