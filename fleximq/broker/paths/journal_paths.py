"""The broker's paths for programs that read the journal, or write to it in transactions.

They answer when the journal has. Without a journal on disk, or while it is read-only, what would have to be kept is
answered with 503.
"""

from collections.abc import Callable
from itertools import groupby, islice
from operator import itemgetter
from typing import Any

import msgpack

from fleximq.broker.authorization import permit, permits, sees
from fleximq.broker.envelope import ConnectedClient, Envelope
from fleximq.broker.paths.arguments import Arguments, IBrokerView, Path, array, journalOf, number, page, text
from fleximq.broker.publishing.transactions import RecordSource
from fleximq.errors import BadRequest, BrokerError, Conflict, NoCapacity, NotKept, NotPermitted
from fleximq.limits import HEADER_BYTES, MEBIBYTE
from fleximq.rights import EVERYTHING, Action
from fleximq.values.message import Content, Message
from fleximq.values.records import CONTENTS, StoredBatch, TopicBounds, contentOf

#: The most bytes that are read at once.
MAX_READ_BYTES = 4 * MEBIBYTE
#: The most bytes of the names that a sink gives to its queries and parts.
NAME_BYTES = 256
#: The most records of one part, and tokens of one batch.
MAX_RECORDS, MAX_TOKENS = 100_000, 1_000_000

Answer = Callable[[Any], None]
_AFTER_ALL = (1 << 63) - 1
_CONTENT = contentOf(Message(b"", Content.MESSAGEPACK))
#: Keys of a header that a record has already, or that no PUB may have.
_OTHERS = frozenset({"topic", "offset", "routing", "reqrep", "status", "auth", "keepalive"})


def bounds(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/journal/bounds``: of each topic its first and last offset, their times in milliseconds, and how much.

    Beside them the ``journal``'s own id, and its ``end``: the offset and ``position`` behind all that is committed.
    Who needs only that says so with ``topics``, which is false then: a page costs up to 0.2 us for each topic there is.
    Left out are topics with which the asker may do nothing.
    """
    after, limit = page(arguments, str, "")
    wanted = arguments.get("topics", True)
    if not isinstance(wanted, bool):
        raise BadRequest("'topics' must be true or false")
    journal = journalOf(broker)
    found: dict[str, Any] = {"topics": [], "next": None, "journal": journal.id}
    if wanted:
        kept = journal.bounds()
        names = list(
            islice((name for name in broker.journalTopics.after(kept, after) if sees(client, name)), limit + 1)
        )
        found["topics"] = [_bounds(name, kept[name]) for name in names[:limit]]
        found["next"] = names[limit - 1] if len(names) > limit else None
    end = journal.end

    def told(position: int, content: bytes | memoryview, endPosition: int) -> None:
        answer(found | {"end": end, "position": endPosition})

    journal.readBytes(_AFTER_ALL, 1, told)


def _bounds(topic: str, kept: TopicBounds) -> dict[str, Any]:
    return {
        "topic": topic,
        "first": kept.first,
        "last": kept.last,
        "first_time": kept.firstTime // 1000,
        "last_time": kept.lastTime // 1000,
        "count": kept.count,
        "bytes": kept.bytes,
    }


def read(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/journal/read``: whole frames as they stand in the journal, at most ``most`` bytes from ``position`` on.

    ``position`` in the answer is that of the first, ``next`` what to ask for next, ``end`` where all ends, ``journal``
    the journal's own id. A frame that is larger comes alone. As everything is in there, only those are answered who may
    subscribe to all topics.
    """
    position = number(arguments, "position")
    most = number(arguments, "most", MAX_READ_BYTES, MAX_READ_BYTES)
    journal = journalOf(broker)

    _permitAll(broker, client)

    def told(first: int, content: bytes | memoryview, end: int) -> None:
        try:
            _permitAll(broker, client)  # there may be other topics in it by now, or other rights
        except NotPermitted as error:
            answer(error)
            return
        next = first + len(content)
        answer({"position": first, "end": end, "next": next, "journal": journal.id, "data": content})

    journal.readBytes(position, most, told)


def _permitAll(broker: IBrokerView, client: ConnectedClient) -> None:
    """Let a client go on that may have everything that is in the journal.

    :raises NotPermitted: it may not.
    """
    if client.rights is EVERYTHING:
        return
    own = (name for name in broker.journal.bounds() if name.startswith("$"))
    if not client.rights.mayAll(Action.SUBSCRIBE) or not all(permits(client, Action.SUBSCRIBE, name) for name in own):
        raise NotPermitted("reading the journal as it is is not permitted to those who may not subscribe to all topics")


def advance(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/journal/advance``: up to which ``offset`` to read from ``start`` for so many ``records`` and ``bytes``.

    Beside it how many these are; nothing from the offset ``end`` on counts. A limit that is left out is none. It may be
    less than the limits allow, but there is at least one record before ``end``, if there is any.
    """
    start, end = number(arguments, "start"), number(arguments, "end")
    records, size = (
        max(1, number(arguments, name)) if arguments.get(name) is not None else None for name in ("records", "bytes")
    )

    def told(offset: int, records: int, size: int) -> None:
        if offset == start < end:
            answer(NoCapacity("the journal cannot be read"))
        else:
            answer({"offset": offset, "records": records, "bytes": size})

    journalOf(broker).advance(start, end, records, size, told)


def reopen(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/journal/reopen``, when the journal keeps things again after a fault: its health."""

    def told(reason: str | None) -> None:
        answer(broker.journalHealth() if reason is None else NoCapacity(reason))

    journalOf(broker).reopen(told)


def stage(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/sink/stage``, when the records are on disk, where nobody sees them: ``token``, which stands for them.

    ``records`` are maps with ``topic``, ``value`` (any MessagePack value) and perhaps ``headers``, a map of further
    keys for the header; ``query``, ``batch`` and ``part`` say whose they are. In place of a value a record may have a
    ``payload``, bytes that are kept as they are, and ``content``, the journal's code for what they are.
    """
    query, batch = _batch(arguments)
    part = text(arguments, "part", NAME_BYTES)
    records = array(arguments, "records")
    if len(records) > MAX_RECORDS:
        raise BadRequest(f"'records' may be at most {MAX_RECORDS}")
    journal = journalOf(broker)
    runs = _runs(broker, client, records)

    def told(token: str | None, reason: str | None) -> None:
        answer({"token": token} if reason is None else _refusal(broker, reason))

    journal.stage(query, batch, part, runs, told)


def commit(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/sink/commit``, when what the ``tokens`` stand for is published: ``offset`` of the first record.

    A repeat for the same ``query`` and ``batch`` is answered likewise, and publishes nothing.
    """
    query, batch = _batch(arguments)
    tokens = array(arguments, "tokens")
    if not all(isinstance(token, str) for token in tokens) or len(tokens) > MAX_TOKENS:
        raise BadRequest(f"'tokens' must be strings, at most {MAX_TOKENS}")
    _permitStaged(broker, client, query, batch)

    def told(offset: int, reason: str | None) -> None:
        answer({"offset": offset} if reason is None else _refusal(broker, reason))

    try:
        broker.transactions.commit(query, batch, tokens, told)
    except NotKept as error:
        raise NoCapacity(error.reason) from error


def abort(broker: IBrokerView, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/sink/abort``: what was staged for this ``query`` and ``batch``, and not committed, is forgotten."""
    query, batch = _batch(arguments)
    _permitStaged(broker, client, query, batch)
    broker.journal.abortStaged(query, batch)
    answer({})


JOURNAL_PATHS: dict[str, Path] = {
    "/journal/bounds": bounds,
    "/journal/read": read,
    "/journal/advance": advance,
    "/journal/reopen": reopen,
    "/sink/stage": stage,
    "/sink/commit": commit,
    "/sink/abort": abort,
}


def _permitStaged(broker: IBrokerView, client: ConnectedClient, query: str, batch: int) -> None:
    """Let a client go on that may publish all that is staged for a batch, whoever has staged it.

    :raises NotPermitted: it may not.
    :raises NoCapacity: there is no journal on disk.
    """
    journal = journalOf(broker)
    if client.rights is not EVERYTHING:
        for name in journal.stagedTopics(query, batch):
            permit(client, Action.PUBLISH, name)


def _refusal(broker: IBrokerView, reason: str) -> BrokerError:
    """Return the error for what the journal refused: 503 if it keeps nothing now, else 409, for the asker is wrong."""
    return (Conflict if broker.journal.health()["state"] == "ok" else NoCapacity)(reason)


def _runs(broker: IBrokerView, client: ConnectedClient, records: list[Any]) -> list[tuple[Envelope, StoredBatch, int]]:
    """Return records as neighbouring runs of one topic.

    :raises BadRequest: one of them is malformed.
    :raises Forbidden: only the broker publishes to its topic.
    :raises NotPermitted: the client may not.
    """
    # One for all, for to make one takes longer than most records do; and not for longer, for it keeps its memory.
    pack = msgpack.Packer().pack
    checked = [_record(record, pack) for record in records]
    runs: list[tuple[Envelope, StoredBatch, int]] = []
    for name, group in groupby(checked, key=itemgetter(0)):
        rows = list(group)
        permit(client, Action.PUBLISH, name)
        topic = broker.topicFor(broker.itself, name)
        runs.append((Envelope(topic, broker.itself, RecordSource(), durable=True), _batchOf(name, rows), len(rows)))
    return runs


def _record(record: Any, pack: Callable[[Any], bytes]) -> tuple[str, bytes, bytes, int]:
    """Return topic, header, payload and the code of its content."""
    if not isinstance(record, dict) or not isinstance(record.get("topic"), str):
        raise BadRequest("a record must be a map with the string 'topic'")
    payload, content = _payload(record, pack)
    headers = record.get("headers")
    return record["topic"], _header(headers, pack) if headers else b"", payload, content


def _header(headers: Any, pack: Callable[[Any], bytes]) -> bytes:
    """Return the further keys of a record's header, packed; nothing where there are none."""
    if not isinstance(headers, dict) or not all(isinstance(key, str) for key in headers):
        raise BadRequest("'headers' of a record must be a map whose keys are strings")
    kept = {key: value for key, value in headers.items() if key not in _OTHERS}
    header = pack(kept) if kept else b""
    if len(header) > HEADER_BYTES:
        raise BadRequest(f"'headers' of a record may have at most {HEADER_BYTES} bytes")
    for key in ("message_id", "correlation_id", "reply_to"):
        if not isinstance(kept.get(key, ""), str):
            raise BadRequest(f"{key!r} must be a string")
    return header


def _payload(record: dict[Any, Any], pack: Callable[[Any], bytes]) -> tuple[bytes, int]:
    """Return a record's payload and the code of its content: of its value, or as it says itself."""
    if ("value" in record) == ("payload" in record):
        raise BadRequest("a record must have a 'value', or a 'payload' in its place")
    if "value" in record:
        return pack(record["value"]), _CONTENT
    payload, code = record["payload"], record.get("content")
    if not isinstance(payload, bytes) or type(code) is not int or code not in CONTENTS:
        raise BadRequest("'payload' of a record must be bytes, and its 'content' the code for what they are")
    if CONTENTS[code][0] is Content.TEXT:
        try:
            payload.decode()
        except UnicodeDecodeError:
            raise BadRequest("'payload' of a record is no UTF-8, as its 'content' says it is") from None
    return payload, code


def _batchOf(topic: str, rows: list[tuple[str, bytes, bytes, int]]) -> StoredBatch:
    number = len(rows)
    same = [0] * number
    headers, payloads, contents = [row[1] for row in rows], [row[2] for row in rows], [row[3] for row in rows]
    return StoredBatch(same, same, [topic], same, [(0, "")], same, same, contents, headers, payloads)


def _batch(arguments: Arguments) -> tuple[str, int]:
    return text(arguments, "query", NAME_BYTES), number(arguments, "batch")
