"""Publications of a client before they are sent: the fields of their headers, and chunks of values. Without I/O."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from fleximq.client.payloads import packed
from fleximq.client.protocol.conversation import Conversation
from fleximq.client.times import Duration, milliseconds, moment
from fleximq.limits import BASE_BYTES, MEBIBYTE

#: Makes the bytes to send, once the connection is known.
FrameMaker = Callable[[Conversation], bytes]
#: Publications are joined to chunks of about this size, so that the number of messages costs little.
_CHUNK_BYTES = MEBIBYTE
_NO_FIELDS: Mapping[str, Any] = {}


def headerFields(headers: Mapping[str, Any] | None, **named: Any) -> Mapping[str, Any]:
    """Return the header fields of a publication except its topic; ``named`` are those given as arguments, if not None.

    :raises ValueError: ``headers`` repeats one.
    """
    fields = {name: value for name, value in named.items() if value is not None}
    if headers is None:
        return fields or _NO_FIELDS
    clash = {"topic", *fields} & headers.keys()
    if clash:
        raise ValueError(f"headers must not contain {', '.join(sorted(clash))}, which is given as an argument")
    return fields | dict(headers)


def jobFields(
    headers: Mapping[str, Any] | None,
    delay: Duration | None,
    at: datetime | None,
    expires: Duration | None,
    **named: Any,
) -> Mapping[str, Any]:
    """Return the header fields of a job, as :func:`headerFields`.

    :param delay: how long it waits before it is put into its queue, or ``at``: until when.
    :param expires: after how long it is removed if no consumer has it.
    :raises ValueError: both ``delay`` and ``at`` are given, or a time has no zone.
    """
    if delay is not None and at is not None:
        raise ValueError("give a delay or a time, not both")
    return headerFields(
        headers,
        deliver_in=None if delay is None else milliseconds("delay", delay),
        deliver_at=None if at is None else moment("at", at),
        expires_in=None if expires is None else milliseconds("expires", expires),
        **named,
    )


def chunksOf(
    topic: str,
    values: Iterable[object],
    pack: Callable[[Any], bytes] = packed,
    fields: Mapping[str, Any] = _NO_FIELDS,
) -> Iterator[tuple[int, FrameMaker]]:
    """Yield the size of about 1 MiB of values and a function that makes their PUBs, which packs bytes only then."""
    chunk: list[bytes] = []
    size, head, areBinary = 0, len(topic) + BASE_BYTES, pack is packed
    for value in values:
        if areBinary and type(value) is bytes:
            payload = value
        else:
            payload = pack(value)
            if areBinary:
                chunk, areBinary = list(map(pack, chunk)), False
        chunk.append(payload)
        size += len(payload) + head
        if size >= _CHUNK_BYTES:
            yield size, _publications(topic, chunk, areBinary, fields)
            chunk, size, areBinary = [], 0, pack is packed
    if chunk:
        yield size, _publications(topic, chunk, areBinary, fields)


def _publications(topic: str, payloads: list[bytes], areBinary: bool, fields: Mapping[str, Any]) -> FrameMaker:
    return lambda conversation: conversation.publications(topic, payloads, areBinary, fields)
