"""The paths of schedules: add and cancel one, list them, and define, pause and remove recurring ones."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgpack

from fleximq.broker.authorization import mayChange, sees
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.paths.arguments import Answer, Arguments, Path, answerStored, number, page, text
from fleximq.broker.publishing.fitting import messageOf
from fleximq.broker.publishing.transactions import RecordSource
from fleximq.broker.schedules.repeat import Repeat, catchUpOf
from fleximq.broker.schedules.repeats import Running
from fleximq.broker.schedules.schedule_header import opensQueue, publishedHeader
from fleximq.broker.schedules.waiting_messages import FIRST_VOLATILE, WaitingMessage
from fleximq.errors import BadRequest, BrokerError, NotKept, NotPermitted, Unfit
from fleximq.limits import TOPIC_BYTES
from fleximq.values.header_pairs import SENDER, readHeader, withSender
from fleximq.values.message import Content, Message
from fleximq.values.occurrences import EXPRESSION, LEAST_EVERY, MOST_EVERY, NAME_BYTES
from fleximq.values.queue_keys import checkTexts, publicationKeys
from fleximq.values.records import DIALECTS, StoredBatch, contentOf

_RECORDS = RecordSource()
_CONTENT = contentOf(Message(b"", Content.MESSAGEPACK))
#: Keys that a header cannot have: the arguments have them, or the broker sets them.
_OWN = frozenset({"topic", "routing", "id", SENDER})
_FLEXIMQ = DIALECTS["fleximq"]
#: So many messages are looked at in one turn of the reactor, and so many times more for one page.
_LOOKED_AT, _LOOKS = 1000, 9


def add(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/schedule/add``: publish a ``payload`` with the keys of ``header`` to a ``topic`` at ``deliver_at``, or
    after ``deliver_in`` milliseconds; the answer has the ``id``, after the commit of one that is durable, as those for
    workers are.
    """
    name = text(arguments, "topic", TOPIC_BYTES)
    if ("deliver_in" in arguments) == ("deliver_at" in arguments):
        raise BadRequest("a schedule has either 'deliver_in' or 'deliver_at'")
    isAfter = "deliver_in" in arguments
    due = number(arguments, "deliver_in") + broker.schedules.now() if isAfter else number(arguments, "deliver_at")
    header, payload = _content(client, arguments)
    envelope = Envelope(broker.topicFor(client, name), client, _RECORDS, durable=opensQueue(header))
    columns = [_FLEXIMQ], [_CONTENT], [header], [payload]
    body = StoredBatch([0], [0], [name], [0], [(client.id, client.name)], [0], *columns)

    def added(ids: Sequence[int], reason: str | None) -> None:
        answer(NotKept(reason) if reason is not None else {"id": ids[0]})

    broker.addSchedules(envelope, body, 1, due, added)


def _content(client: ConnectedClient, arguments: Arguments) -> tuple[bytes, bytes]:
    """Return the header and the payload of a publication as the journal stores them."""
    fields = arguments.get("header", {})
    if not isinstance(fields, dict) or not all(isinstance(key, str) for key in fields):
        raise BadRequest("'header' must be a map with strings as keys")
    for key in _OWN.intersection(fields):
        raise BadRequest(f"'header' must not have {key!r}")
    checkTexts(fields)
    publicationKeys({"topic": "", **fields})
    try:
        header = msgpack.packb(fields) if fields else b""
        readHeader(header or b"\x80")
        payload = msgpack.packb(arguments["payload"]) if "payload" in arguments else b""
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise BadRequest(f"'header' or 'payload' cannot be packed: {error}") from None
    return publishedHeader(withSender(header, client.sender) if client.sender else header), payload


def repeat(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/schedule/repeat``: define the recurring schedule of this ``name``, in place of any other.

    It publishes ``payload`` with the keys of ``header`` to ``topic``, ``every`` so many milliseconds, or at the times
    of the expression ``cron`` in ``timezone`` (UTC). ``catch_up`` says which missed publications are made up for:
    ``none``, the ``last`` or ``all``. The answer has ``next``, the next due time.
    """
    name, topic = text(arguments, "name", NAME_BYTES), text(arguments, "topic", TOPIC_BYTES)
    check = broker.topicFor(client, topic).check
    repeats = broker.schedules.repeats
    if not _mayChange(broker, client, name):
        raise NotPermitted(f"another principal has a recurring schedule {name!r}", name)
    header, payload = _content(client, arguments)
    if check is not None and (reason := check(messageOf(payload, _CONTENT))) is not None:
        raise Unfit(reason)
    hasCron = "cron" in arguments
    now = broker.schedules.now()
    repeats.define(
        Repeat(
            name=name,
            topic=topic,
            payload=payload,
            header=header,
            content=_CONTENT,
            publisher=(client.id, client.name, _FLEXIMQ),
            start=now,
            since=now,
            every=number(arguments, "every", None, MOST_EVERY, LEAST_EVERY) if "every" in arguments else None,
            cron=text(arguments, "cron", EXPRESSION) if hasCron else None,
            timezone=text(arguments, "timezone", EXPRESSION) if "timezone" in arguments else "UTC",
            catchUp=catchUpOf(arguments.get("catch_up", "none")),
            paused=_flag(arguments, "paused", False),
            principal=client.principal,
        )
    )
    running = repeats.get(name)
    answerStored(broker, answer, {"name": name, "next": None if running is None else running.next})


def _mayChange(broker: Broker, client: ConnectedClient, name: str) -> bool:
    """Tell whether a client may define, pause or remove the recurring schedule of this name, if there is one; False if
    it is hidden from the client. Raises NotPermitted.
    """
    running = broker.schedules.repeats.get(name)
    return running is None or mayChange(client, running.definition.principal, running.definition.topic)


def _flag(arguments: Arguments, name: str, otherwise: bool) -> bool:
    value = arguments.get(name, otherwise)
    if not isinstance(value, bool):
        raise BadRequest(f"{name!r} must be true or false")
    return value


def pause(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/schedule/pause``: pause the recurring schedule of this ``name``, or continue if ``paused`` is false; it
    does not make up for due times of the pause. The answer says whether it was ``found``.
    """
    name, paused = text(arguments, "name", NAME_BYTES), _flag(arguments, "paused", True)
    schedules = broker.schedules
    found = _mayChange(broker, client, name) and schedules.repeats.pause(name, paused, schedules.now())
    answerStored(broker, answer, {"found": found})


def cancel(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/schedule/cancel``: cancel the schedule with this ``id``, or the recurring one with this ``name``; say
    whether it was ``cancelled``, durable ones for good.
    """
    if ("id" in arguments) == ("name" in arguments):
        raise BadRequest("name either the 'id' of a schedule or the 'name' of a recurring one")
    if "name" in arguments:
        name = text(arguments, "name", NAME_BYTES)
        removed = _mayChange(broker, client, name) and broker.schedules.repeats.remove(name)
        answerStored(broker, answer, {"cancelled": removed})
        return

    def done(found: bool | BrokerError) -> None:
        if isinstance(found, BrokerError):
            answer(found)
        elif found:
            answerStored(broker, answer, {"cancelled": True})
        else:
            answer({"cancelled": False})

    broker.schedules.cancel(client, number(arguments, "id"), done)


# -- lists ---------------------------------------------------------------------------------------------


def schedules(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/schedule/list``: the waiting messages by due time, how many there are, by how many
    seconds the first is late, and the recurring schedules.

    A page has ``limit`` messages ``after`` the key ``next`` of the page before; those of topics that are hidden from
    the client are left out. The recurring ones are all on the first page. ``topic`` chooses those of one topic,
    ``prefix`` recurring ones by the beginning of their names, ``contains`` those with this part in topic, name or
    message id, in any case of letters. A page is shorter if many are left out: at most :data:`_LOOKS` times
    :data:`_LOOKED_AT` are looked at.
    """
    after, limit = page(arguments, str, "")
    topic = text(arguments, "topic", TOPIC_BYTES) if "topic" in arguments else None
    prefix = text(arguments, "prefix", NAME_BYTES) if "prefix" in arguments else ""
    part = text(arguments, "contains", TOPIC_BYTES).casefold() if arguments.get("contains") else ""

    def isChosen(name: str, other: str | None) -> bool:
        return topic in (None, name) and part in f"{name}\n{other or ''}".casefold() and sees(client, name)

    start = _position(after)
    every = [] if after else [each for each in broker.schedules.repeats if each.definition.name.startswith(prefix)]
    repeats = [_repeatRow(each) for each in every if isChosen(each.definition.topic, each.definition.name)]
    result = {"waiting": len(broker.schedules), "late": broker.schedules.late, "repeats": repeats}
    chosen: list[WaitingMessage] = []

    def look(due: int, latest: int, most: int, more: int) -> None:
        some = broker.schedules.after(due, latest, most)

        def read(messages: Sequence[WaitingMessage]) -> None:
            chosen.extend(each for each in messages if isChosen(each.topic, each.messageId))
            following = None
            if len(chosen) > limit:
                following = chosen[limit - 1].due, chosen[limit - 1].number
            elif some.size == most:
                following = some.dues[-1], some.numbers[-1]
                if more:
                    broker.deadlines.callLater(0, partial(look, *following, _LOOKED_AT, more - 1))
                    return
            key = None if following is None else "{}:{}".format(*following)
            answer({"schedules": [_row(each) for each in chosen[:limit]], **result, "next": key})

        broker.schedules.find(some.numbers, read)

    if prefix:  # single ones have no names
        answer({"schedules": [], **result, "next": None})
    else:
        look(*start, _LOOKED_AT if part or topic else limit + 1, _LOOKS)


def _position(after: str) -> tuple[int, int]:
    """Return due time and id of a key of a listing."""
    if not after:
        return 0, -1
    due, _, latest = after.partition(":")
    if not (due.isdecimal() and latest.isdecimal() and len(after) < 40):
        raise BadRequest("'after' must be the 'next' of another page")
    return int(due), int(latest)


def _row(message: WaitingMessage) -> dict[str, Any]:
    return {
        "id": message.number,
        "due": message.due,
        "topic": message.topic,
        "principal": message.principal,
        "bytes": message.bytes,
        "kept": message.number < FIRST_VOLATILE,
        "message_id": message.messageId,
        "correlation_id": message.correlationId,
    }


def _repeatRow(running: Running) -> dict[str, Any]:
    repeat = running.definition
    return {
        "name": repeat.name,
        "topic": repeat.topic,
        "next": None if repeat.paused else running.next,
        "every": repeat.every,
        "cron": repeat.cron,
        "timezone": repeat.timezone,
        "catch_up": str(repeat.catchUp),
        "paused": repeat.paused,
        "principal": repeat.principal,
        "settings": repeat.isSetting,
    }


#: Those that act; they need ``publish`` for the topics of their schedules.
SCHEDULE_ACTS = frozenset({add, repeat, pause, cancel})
#: The paths of schedules by name.
SCHEDULE_PATHS: dict[str, Path] = {
    "/schedule/add": add,
    "/schedule/list": schedules,
    "/schedule/cancel": cancel,
    "/schedule/repeat": repeat,
    "/schedule/pause": pause,
}
