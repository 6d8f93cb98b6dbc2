"""Records as FlexiMQ PUB frames."""

from collections.abc import Sequence
from typing import Any

from fleximq.values.message import Content, Message
from fleximq.values.records import CONTENTS, Batch
from fleximq.wire.fleximq_record_frame import (
    framesWith,
    framesWithout,
    mixedWith,
    mixedWithout,
    prefixWith,
    prefixWithout,
)
from fleximq.wire.payload_conversion import toMessagePack


def recordsWith(batches: Sequence[Batch]) -> bytes:
    """Return records with their offsets."""
    return b"".join([_frames(batch, True) for batch in batches])


def recordsWithout(batches: Sequence[Batch]) -> bytes:
    """Return records without offsets."""
    return b"".join([_frames(batch, False) for batch in batches])


def _frames(batch: Batch, offset: bool) -> bytes:
    payloads = asMessagePack(batch.contents, batch.payloads)
    if not payloads:
        return b""
    prefix = prefixWith if offset else prefixWithout
    topics, publishers, headers = batch.topicOf, batch.publisherOf, batch.headers
    if _same(topics) and _same(publishers) and _same(headers):
        shared = prefix(batch.publishers[publishers[0]][0], headers[0], batch.topics[topics[0]])
        return framesWith(shared, batch.offsets, payloads) if offset else framesWithout(shared, payloads)
    known: dict[tuple[int, int, bytes], bytes] = {}
    prefixes: list[bytes] = []
    for key in zip(topics, publishers, headers, strict=True):
        found = known.get(key)
        if found is None:
            topic, publisher, header = key
            found = known[key] = prefix(batch.publishers[publisher][0], header, batch.topics[topic])
        prefixes.append(found)
    return mixedWith(prefixes, batch.offsets, payloads) if offset else mixedWithout(prefixes, payloads)


def _same(column: Any) -> bool:
    """Tell whether all values of a column are the same."""
    if isinstance(column, memoryview):  # a column of a frame
        return bytes(column) == bytes(column[:1]) * len(column)
    return column.count(column[0]) == len(column)  # type: ignore[no-any-return]


def asMessagePack(contents: Sequence[int], payloads: Sequence[bytes]) -> Sequence[bytes]:
    """Return payloads as FlexiMQ carries them."""
    if all(CONTENTS[code][0] is Content.MESSAGEPACK for code in set(contents)):
        return payloads
    return [
        toMessagePack(Message(payload, CONTENTS[code][0])) for code, payload in zip(contents, payloads, strict=True)
    ]
