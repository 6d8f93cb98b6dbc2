"""``/journal`` and ``/sink`` paths: programs read the journal, or write to it in transactions.

Answers arrive when the journal has finished; requests that it cannot store are answered with 503.
"""

import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Annotated, Any, TypedDict

import msgspec

from fleximq.broker.authorization import permit, permits, sees
from fleximq.broker.broker import Broker
from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.paths.arguments import (
    Answer,
    Arguments,
    Path,
    array,
    begin,
    journalOf,
    number,
    page,
    seenNames,
    text,
)
from fleximq.broker.paths.rows import boundsRow
from fleximq.broker.publishing.fitting import messageOf
from fleximq.broker.topics.topic_table import Check
from fleximq.errors import BadRequest, BrokerError, Conflict, NoCapacity, NotKept, NotPermitted, Unfit
from fleximq.limits import HEADER_BYTES, MEBIBYTE
from fleximq.rights import UNRESTRICTED, Action
from fleximq.values.header_pairs import readHeader, withSender
from fleximq.values.message import Content, Message
from fleximq.values.nesting import NestedTooDeeply
from fleximq.values.records import CONTENTS, SCHEDULED, PublishedRun, Run, contentOf, ownQuery

#: Maximum bytes of one read.
MAX_READ_BYTES = 4 * MEBIBYTE
#: Maximum bytes of the names of queries and parts.
NAME_BYTES = 256
#: Maximum records of one part, and tokens of one batch.
MAX_RECORDS, MAX_TOKENS = 100_000, 200_000
#: Maximum characters of a token: those of a part have at most about half as many.
MAX_TOKEN_CHARACTERS = 1 << 20

_AFTER_ALL = (1 << 63) - 1
#: Maximum records that are read, and runs that are staged, in one turn of the reactor.
_AT_ONCE = 250
#: Maximum records of one run.
_RUN_RECORDS = 5000
_decodeHeaders = msgspec.msgpack.Decoder(dict[str, msgspec.Raw] | None).decode
_CONTENT = contentOf(Message(b"", Content.MESSAGEPACK))
#: Keys of a header that a record has already, or that a PUB must not have.
_OTHERS = frozenset({"topic", "offset", "routing", "reqrep", "status", "auth", "keepalive", "delivery"})


class _Record(TypedDict, total=False):
    """A record of ``/sink/stage``, read no further than needed."""

    topic: str
    value: msgspec.Raw
    payload: bytes
    content: int
    headers: msgspec.Raw


_decodeRecord = msgspec.msgpack.Decoder(_Record).decode


class _Part(TypedDict, total=False):
    """The arguments of ``/sink/stage``."""

    query: str
    batch: int
    part: str
    records: Annotated[list[msgspec.Raw], msgspec.Meta(max_length=MAX_RECORDS)]


class _Tokens(TypedDict, total=False):
    """The arguments of ``/sink/commit``."""

    query: str
    batch: int
    tokens: Annotated[list[str], msgspec.Meta(max_length=MAX_TOKENS)]


def bounds(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/journal/bounds``: first and last offset of each topic, their times in milliseconds, and its size.

    Also the ``journal``'s id, and its ``end``: offset and ``position`` after the last commit. With ``topics`` false the
    answer has only these. Topics without any right for the client are left out.
    """
    after, limit = page(arguments, str, "")
    wanted = arguments.get("topics", True)
    if not isinstance(wanted, bool):
        raise BadRequest("'topics' must be true or false")
    journal = journalOf(broker)

    def listed(names: list[str], nextName: str | None) -> None:
        kept, end = journal.bounds() if names else {}, journal.end
        found = {
            "topics": [
                {"topic": name, **boundsRow(kept[name]), "count": kept[name].count} for name in names if name in kept
            ],
            "next": nextName,
            "journal": journal.id,
        }

        def done(position: int, content: bytes | memoryview, endPosition: int) -> None:
            answer(found | {"end": end, "position": endPosition})

        journal.readBytes(_AFTER_ALL, 1, done)

    if wanted:
        seenNames(broker, partial(sees, client), journal.topics, after, limit, listed)
    else:
        listed([], None)


def read(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/journal/read``: complete frames from ``position`` on, unchanged, at most ``most`` bytes.

    In the answer ``position`` is that of the first frame, ``next`` the one to ask for next, ``end`` the end of the
    journal, ``journal`` its id. A frame that is larger is sent alone. The data includes all topics, so the client must
    have the right to subscribe to all.
    """
    position = number(arguments, "position")
    most = number(arguments, "most", MAX_READ_BYTES, MAX_READ_BYTES)
    journal = journalOf(broker)
    _permitAll(broker, client)

    def done(first: int, content: bytes | memoryview, end: int) -> None:
        try:
            _permitAll(broker, client)  # topics or rights may have changed meanwhile
        except NotPermitted as error:
            answer(error)
            return
        nextName = first + len(content)
        answer({"position": first, "end": end, "next": nextName, "journal": journal.id, "data": content})

    journal.readBytes(position, most, done)


def _permitAll(broker: Broker, client: ConnectedClient) -> None:
    if client.rights in UNRESTRICTED:
        return
    own = broker.journal.topics(sys.maxsize, "$", "%")
    if not client.rights.mayAll(Action.SUBSCRIBE) or not all(permits(client, Action.SUBSCRIBE, name) for name in own):
        raise NotPermitted("reading the journal as it is is not permitted to those who may not subscribe to all topics")


def advance(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/journal/advance``: up to which ``offset`` to read from ``start`` for so many ``records`` and ``bytes``.

    Also their actual numbers; records from the offset ``end`` on do not count. A missing limit is unlimited. The range
    may be smaller than the limits allow, but has at least one record if any exists before ``end``.
    """
    start, end = number(arguments, "start"), number(arguments, "end")
    records, size = (
        max(1, number(arguments, name)) if arguments.get(name) is not None else None for name in ("records", "bytes")
    )

    def done(offset: int, records: int, size: int) -> None:
        if offset == start < end:
            answer(NoCapacity("the journal cannot be read"))
        else:
            answer({"offset": offset, "records": records, "bytes": size})

    journalOf(broker).advance(start, end, records, size, done)


def reopen(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/journal/reopen``, after the journal is writable again: its health."""

    def done(reason: str | None) -> None:
        answer(broker.journalHealth() if reason is None else NoCapacity(reason))

    journalOf(broker).reopen(done)


def stage(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/sink/stage``, after the records are on disk, still invisible: their ``token``.

    ``records`` are maps with ``topic``, ``value`` (any MessagePack value) and optionally ``headers``, a map of further
    keys for the header; ``query``, ``batch`` and ``part`` name their origin. In place of a value a record may have a
    ``payload``, bytes to store unchanged, and ``content``, the journal's code for their format.
    """
    query, batch = _batch(client, arguments)
    part = text(arguments, "part", NAME_BYTES)
    records = array(arguments, "records", MAX_RECORDS)
    journalOf(broker)  # raises NoCapacity without a journal on disk
    stageRuns = broker.transactions.stage
    tokens: list[str] = []
    reasons: list[str] = []

    def done(token: str | None, reason: str | None, last: bool = False) -> None:
        if token is None:
            reasons.append(reason or "")
        else:
            tokens.append(token)
        if last:
            answer(_refusal(broker, reasons[0]) if reasons else {"token": ",".join(filter(None, tokens))})

    def steps() -> Iterator[None]:
        runs: list[PublishedRun] = []
        try:
            for _ in _runs(broker, client, records, runs):
                yield
        except BrokerError as error:
            answer(error)
            return
        while len(runs) > _AT_ONCE:
            stageRuns(query, batch, part, runs[:_AT_ONCE], done)
            del runs[:_AT_ONCE]
            yield
        stageRuns(query, batch, part, runs, partial(done, last=True))

    begin(broker, steps())


def commit(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/sink/commit``, after the records of the ``tokens`` are published: ``offset`` of the first record.

    A repeat for the same ``query`` and ``batch`` by the same principal gets the same answer without publishing again.
    Without staged records the client must have the right to publish to some topic.
    """
    query, batch = _batch(client, arguments)
    tokens = array(arguments, "tokens")
    if len(tokens) > MAX_TOKENS or any(
        not isinstance(token, str) or len(token) > MAX_TOKEN_CHARACTERS or ",," in token for token in tokens
    ):
        raise BadRequest(f"'tokens' must be at most {MAX_TOKENS} strings that /sink/stage has answered")
    _permitStaged(broker, client, query, batch)
    isEmpty = not any(token.strip(",") for token in tokens)
    if isEmpty and client.rights not in UNRESTRICTED and not client.rights.mayMatch(Action.PUBLISH, "#"):
        raise NotPermitted("to commit an empty batch is not permitted to those who may not publish")

    def done(offset: int, reason: str | None) -> None:
        answer({"offset": offset} if reason is None else _refusal(broker, reason))

    try:
        broker.transactions.commit(query, batch, tokens, done)
    except NotKept as error:
        raise NoCapacity(error.reason) from error


def abort(broker: Broker, client: ConnectedClient, arguments: Arguments, answer: Answer) -> None:
    """Answer ``/sink/abort``: delete uncommitted staged records of this ``query`` and ``batch``."""
    query, batch = _batch(client, arguments)
    _permitStaged(broker, client, query, batch)
    broker.transactions.abort(query, batch)
    broker.whenStored(lambda reason: answer({} if reason is None else NoCapacity(reason)))


#: Readers of the arguments of paths that take many, in linear time and memory.
READERS: dict[Path, Callable[[bytes], Any]] = {
    stage: msgspec.msgpack.Decoder(_Part).decode,
    commit: msgspec.msgpack.Decoder(_Tokens).decode,
}
JOURNAL_PATHS: dict[str, Path] = {
    "/journal/bounds": bounds,
    "/journal/read": read,
    "/journal/advance": advance,
    "/journal/reopen": reopen,
    "/sink/stage": stage,
    "/sink/commit": commit,
    "/sink/abort": abort,
}


def _permitStaged(broker: Broker, client: ConnectedClient, query: str, batch: int) -> None:
    """Check that a client may publish all staged records of a batch, since its rights may have changed."""
    journal = journalOf(broker)
    if client.rights not in UNRESTRICTED:
        for name in journal.stagedTopics(query, batch):
            permit(client, Action.PUBLISH, name)


def _refusal(broker: Broker, reason: str) -> BrokerError:
    """Return the error for a refusal of the journal: 503 if it is read-only, else 409, a mistake of the client."""
    return (Conflict if broker.journal.health()["state"] == "ok" else NoCapacity)(reason)


def _runs(
    broker: Broker, client: ConnectedClient, records: list[msgspec.Raw], runs: list[PublishedRun]
) -> Iterator[None]:
    """Add records to ``runs``, neighbours of one topic together, as published by the broker; in slices of work.

    :raises BadRequest: one of them is malformed; otherwise as :meth:`Broker.topicFor`.
    :raises Unfit: one of them does not fit the schema of its topic.
    """
    publisher = broker.brokerClient
    last: str | None = None
    run: Any = None
    check: Check | None = None
    for start in range(0, len(records), _AT_ONCE):
        if start:
            yield
        for packed in records[start : start + _AT_ONCE]:
            name, header, payload, content = _record(packed)
            if name != last or len(run.payloads) == _RUN_RECORDS:
                last, run = name, Run([], [], [])
                topic = broker.topicFor(client, name)
                check = topic.check
                runs.append(PublishedRun(topic.name, publisher.id, publisher.name, publisher.dialect, run))
            if check is not None and (reason := check(messageOf(payload, content))) is not None:
                raise Unfit(reason)
            columns = withSender(header, client.sender), payload, content
            for column, value in zip(run, columns, strict=True):
                column.append(value)


def _record(packed: msgspec.Raw) -> tuple[str, bytes, bytes, int]:
    """Return topic, header, payload and the code of its content."""
    try:
        record = _decodeRecord(packed)
    except msgspec.ValidationError as error:
        raise BadRequest(f"a record has a wrong type: {error}") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("a record is not MessagePack") from None
    if "topic" not in record:
        raise BadRequest("a record must be a map with the string 'topic'")
    payload, content = _payload(record)
    headers = record.get("headers")
    return record["topic"], _header(headers) if headers is not None else b"", payload, content


def _header(packed: msgspec.Raw) -> bytes:
    """Return the further keys of a record's header, packed; empty without any."""
    raw = bytes(packed)
    if len(raw) > HEADER_BYTES:
        raise BadRequest(f"'headers' of a record may have at most {HEADER_BYTES} bytes")
    try:
        readHeader(raw)
        headers = _decodeHeaders(packed) or {}
        kept = {key: value for key, value in headers.items() if key not in _OTHERS}
    except NestedTooDeeply as error:
        raise BadRequest(f"'headers' of a record are {error}") from None
    except (ValueError, TypeError, OverflowError, RecursionError):
        raise BadRequest("'headers' of a record must be a map of MessagePack with different strings as keys") from None
    for key in ("message_id", "correlation_id", "reply_to"):
        if key in kept and not _isString(kept[key]):
            raise BadRequest(f"{key!r} must be a string")
    return msgspec.msgpack.encode(kept) if kept else b""


def _isString(packed: msgspec.Raw) -> bool:
    try:
        msgspec.msgpack.decode(packed, type=str)
    except msgspec.DecodeError:
        return False
    return True


def _payload(record: _Record) -> tuple[bytes, int]:
    """Return a record's payload and the code of its content, from its value or as given."""
    if ("value" in record) == ("payload" in record):
        raise BadRequest("a record must have a 'value', or a 'payload' in its place")
    if "value" in record:
        return bytes(record["value"]), _CONTENT
    payload, code = record["payload"], record.get("content")
    if code not in CONTENTS:
        raise BadRequest("'payload' of a record must be bytes, and its 'content' the code for what they are")
    if CONTENTS[code][0] is Content.TEXT:
        try:
            payload.decode()
        except UnicodeDecodeError:
            raise BadRequest("'payload' of a record is no UTF-8, as its 'content' says it is") from None
    return payload, code & ~SCHEDULED  # a record copied from another journal proves nothing here


def _batch(client: ConnectedClient, arguments: Arguments) -> tuple[str, int]:
    """Return the name of the query in the journal, and the number of its batch."""
    query = text(arguments, "query", NAME_BYTES)
    if "\n" in query:
        raise BadRequest("'query' must not contain a line break")
    isShared = client.principal is None and client.rights in UNRESTRICTED
    return query if isShared else ownQuery(client.principal, query), number(arguments, "batch")
