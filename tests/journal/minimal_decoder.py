"""A decoder of the journal's frames, written from docs/reference/journal-format.rst without the broker's code.

``struct`` and ``zlib`` are all it needs beside a reader of MessagePack. It is what a second implementation could begin
with, and shows that the page says enough.
"""

import struct
import zlib
from typing import Any

import msgpack

KINDS = {
    0: "SEGMENT",
    1: "RECORDS",
    2: "SPARSE_RECORDS",
    3: "STAGED",
    4: "TRANSACTION",
    5: "NOTES",
    6: "GAP",
    7: "CHECKPOINT",
    8: "REMOVED",
    9: "LOST",
}
HEADER = struct.Struct("<4sHBBIIIIQQQqq")
FIELDS = "version kind flags length crc previous count segment position baseOffset firstTime lastTime".split()
NOTES: dict[int, tuple[str, list[str]]] = {
    0: ("Opened", ["key", "topic", "qos", "id", "owner", "offset"]),
    1: ("Closed", ["key"]),
    2: ("HandedOut", ["key", "count", "again", "time"]),
    3: ("Acknowledged", ["key", "offsets"]),
    4: ("ClientIds", ["until"]),
    5: ("Reached", ["group", "next", "time", "lost"]),
    6: ("Forgotten", ["group"]),
}


def decode(raw: bytes) -> dict[str, Any]:
    """Return what a frame says, in the form of ``vectors.json``."""
    magic, *values = HEADER.unpack_from(raw)
    header = dict(zip(FIELDS, values, strict=True))
    if magic != b"FXJ1" or header["version"] != 1 or header["flags"] > 1 or header["length"] != len(raw):
        raise ValueError("no frame")
    if zlib.crc32(raw[:12] + raw[16:]) != header["crc"]:
        raise ValueError("damaged")
    kind = KINDS[header.pop("kind")]
    body: Any
    if kind in ("RECORDS", "SPARSE_RECORDS"):
        body = records(raw, 64, header["count"], header["baseOffset"], kind == "SPARSE_RECORDS")
    elif kind == "STAGED":
        (size,) = struct.unpack_from("<I", raw, 64)
        start = 72 + (size + 7) // 8 * 8
        body = {
            "meta": msgpack.unpackb(raw[72 : 72 + size]),
            "records": records(raw, start, header["count"], None, False),
        }
    elif kind == "REMOVED":
        body = {"until": struct.unpack_from("<Q", raw, 64)[0]}
    else:
        unpacker = msgpack.Unpacker(strict_map_key=False)
        unpacker.feed(raw[64:])
        body = unpacker.unpack()
        if any(raw[64 + unpacker.tell() :]):
            raise ValueError("something stands behind the value")
    if kind == "NOTES":
        body = [note(each) for each in body]
    return {"kind": kind, "header": header, "body": body}


def note(values: list[Any]) -> dict[str, Any]:
    """Return a note by the names of its values."""
    name, fields = NOTES[values[0]]
    plain = [offsets(value) if isinstance(value, bytes) else value for value in values[1:]]
    return {"note": name} | dict(zip(fields, plain, strict=True))


def offsets(packed: bytes) -> list[int]:
    """Return the offsets in a note."""
    return list(struct.unpack(f"<{len(packed) // 8}Q", packed))


def records(raw: bytes, start: int, count: int, base: int | None, sparse: bool) -> list[dict[str, Any]]:
    """Return the records whose shape begins at ``start``."""
    at = start + 32
    topicCount, topicBytes, publisherCount, publisherBytes, headerBytes, payloadBytes = struct.unpack_from(
        "<IIIIQQ", raw, start
    )

    def take(size: int) -> bytes:
        nonlocal at
        found = raw[at : at + size]
        at += (size + 7) // 8 * 8
        return found

    def column(letter: str, number: int) -> list[int]:
        return list(struct.unpack(f"<{number}{letter}", take(number * struct.calcsize("<" + letter))))

    def cut(blob: bytes, ends: list[int]) -> list[bytes]:
        return [blob[ends[place] : ends[place + 1]] for place in range(len(ends) - 1)]

    places = column("q", count) if sparse else [] if base is None else list(range(base, base + count))
    timestamps = column("q", count)
    topicOf, publisherOf = column("I", count), column("I", count)
    dialects, contents = column("H", count), column("H", count)
    headerEnds, payloadEnds = column("i", count + 1), column("i", count + 1)
    topicEnds = column("i", topicCount + 1)
    topics = [name.decode() for name in cut(take(topicBytes), topicEnds)]
    publishers = column("I", publisherCount)
    publisherEnds = column("i", publisherCount + 1)
    names = [name.decode() for name in cut(take(publisherBytes), publisherEnds)]
    headers, payloads = cut(take(headerBytes), headerEnds), cut(take(payloadBytes), payloadEnds)
    if any(raw[at:]) or (at != len(raw) and not sparse):
        raise ValueError("something stands behind the payloads")
    return [
        ({"offset": places[place]} if places else {})
        | {
            "timestamp": timestamps[place],
            "topic": topics[topicOf[place]],
            "publisher": publishers[publisherOf[place]],
            "publisherName": names[publisherOf[place]],
            "dialect": dialects[place],
            "content": contents[place],
            "header": headers[place].hex(),
            "payload": payloads[place].hex(),
        }
        for place in range(count)
    ]
