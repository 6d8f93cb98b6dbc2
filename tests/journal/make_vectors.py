"""Writes the vectors of the journal's format: ``python -m tests.journal.make_vectors``.

``vectors/<name>.fxj`` is one frame each, ``vectors/segment.fxj`` all of them as a segment; ``vectors/vectors.json``
says what they mean. They are part of the format: they change only when its version does.
"""

import json
from pathlib import Path
from typing import Any

from fleximq.journal.format.control_frames import NOTE_NAMES, NOTES
from fleximq.journal.format.frame import Frame, FrameHeader, FrameKind, readHeader
from fleximq.values.records import StoredBatch
from tests.journal.frames import DECODERS, SEGMENT, chained, everyKind

FOLDER = Path(__file__).parent / "vectors"
#: Where the segment begins.
POSITION = 1 << 20
NAMES = [
    "segment-start",
    "checkpoint",
    "records",
    "staged",
    "transaction",
    "transaction-aborted",
    "notes",
    "gap",
    "sparse-records",
    "lost",
    "removed",
]
_NOTE_NAMES = {kind: name for name, (kind, _) in zip(NOTE_NAMES, NOTES, strict=True)}


def frames() -> list[Frame]:
    """Return the frames in the order of their names."""
    return everyKind(POSITION)


def meaning(raw: bytes) -> dict[str, Any]:
    """Return what a frame says, as JSON has it: bytes are hexadecimal digits."""
    header = readHeader(raw)
    return {
        "kind": FrameKind(header.kind).name,
        "hex": raw.hex(),
        "header": {name: value for name, value in header._asdict().items() if name != "kind"},
        "body": _plain(header, DECODERS[FrameKind(header.kind)](header, raw)),
    }


def _plain(header: FrameHeader, value: Any) -> Any:
    if isinstance(value, StoredBatch):
        return _records(value)
    if header.kind == FrameKind.STAGED:
        meta, batch = value
        return {"meta": meta, "records": _records(batch, offsets=False)}
    if header.kind == FrameKind.REMOVED:
        return {"until": value}
    if header.kind == FrameKind.NOTES:
        return [{"note": _NOTE_NAMES[type(note)]} | _jsonable(note._asdict()) for note in value]
    return _jsonable(value._asdict())


def _records(batch: StoredBatch, offsets: bool = True) -> list[dict[str, Any]]:
    records = []
    for place in range(len(batch)):
        publisher, name = batch.publishers[batch.publisherOf[place]]
        record = {
            "timestamp": batch.timestamps[place],
            "topic": batch.topics[batch.topicOf[place]],
            "publisher": publisher,
            "publisherName": name,
            "dialect": batch.dialects[place],
            "content": batch.contents[place],
            "header": batch.headers[place].hex(),
            "payload": batch.payloads[place].hex(),
        }
        records.append(({"offset": batch.offsets[place]} if offsets else {}) | record)
    return records


def _jsonable(value: Any) -> Any:
    """Return arrays as lists, and NamedTuples as the arrays that they are in MessagePack."""
    if isinstance(value, dict):
        return {name: _jsonable(each) for name, each in value.items()}
    if isinstance(value, (str, int)) or value is None:
        return value
    return [_jsonable(each) for each in value]


def main() -> None:
    """Write all files."""
    FOLDER.mkdir(exist_ok=True)
    raws = chained(frames(), POSITION)
    for name, raw in zip(NAMES, raws, strict=True):
        (FOLDER / f"{name}.fxj").write_bytes(raw)
    (FOLDER / "segment.fxj").write_bytes(b"".join(raws))
    vectors = {
        "format": 1,
        "segment": SEGMENT,
        "position": POSITION,
        "frames": [{"name": name} | meaning(raw) for name, raw in zip(NAMES, raws, strict=True)],
    }
    (FOLDER / "vectors.json").write_text(json.dumps(vectors, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
