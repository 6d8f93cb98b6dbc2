"""What there is of each topic in a journal: found by reading it once, without Spark, a few million records a second."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from fleximq.pipeline.payloads.schema_inference import inferred
from fleximq.pipeline.query.journal_sample import SAMPLE

#: What a topic's first payloads are taken for, the first that fits most of them.
_GUESSED = ("messagepack", "json")


@dataclass(slots=True)
class Topic:
    """``bytes`` are those of payloads; times are microseconds since 1970. ``format`` and ``schema`` are guessed."""

    records: int = 0
    bytes: int = 0
    first: int = 0
    last: int = 0
    firstTime: int = 0
    lastTime: int = 0
    format: str = "raw"
    schema: pa.Schema = field(default_factory=lambda: pa.schema([]))
    _looked: list[pa.RecordBatch] = field(default_factory=list)

    def add(self, rows: pa.RecordBatch) -> None:
        """Count some records, of which the first few are kept to guess from."""
        offsets = rows.column("offset").to_numpy(zero_copy_only=False)
        times = rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
        first, last = int(offsets.min()), int(offsets.max())
        lowest, highest = int(times.min()), int(times.max())
        if self.records:
            first, last = min(first, self.first), max(last, self.last)
            lowest, highest = min(lowest, self.firstTime), max(highest, self.lastTime)
        self.first, self.last, self.firstTime, self.lastTime = first, last, lowest, highest
        if (left := SAMPLE - self.records) > 0:
            self._looked.append(rows.select(["value", "dialect", "content"]).slice(0, left))
        self.records += len(rows)
        self.bytes += pc.sum(pc.binary_length(rows.column("value"))).as_py() or 0

    def guess(self) -> None:
        """Find out what the payloads are, from those that were kept."""
        for format in _GUESSED:
            schema = pa.schema([])
            for rows in self._looked:
                value, dialect, content = rows.columns
                schema = inferred(format, value, schema, dialects=dialect, contents=content)
            if schema.names:
                self.format, self.schema = format, schema
                break
        else:
            self.format = "text" if all(_isText(rows.column("value")) for rows in self._looked) else "raw"
        self._looked = []


def _isText(values: pa.Array) -> bool:
    try:
        values.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return True


#: What has to be read for :func:`overview`.
COLUMNS = ("topic", "offset", "timestamp", "value", "dialect", "content")


def overview(batches: Iterable[pa.RecordBatch]) -> dict[str, Topic]:
    """Return what there is of each topic, by name, sorted.

    :param batches: of all records, with :data:`COLUMNS`.
    """
    topics: dict[str, Topic] = {}
    for batch in batches:
        encoded = pc.dictionary_encode(batch.column("topic"))
        names = encoded.dictionary.to_pylist()
        which = encoded.indices.to_numpy(zero_copy_only=False)
        for place, name in enumerate(names):
            rows = batch if len(names) == 1 else batch.take(pa.array(np.flatnonzero(which == place)))
            topics.setdefault(name, Topic()).add(rows)
    for topic in topics.values():
        topic.guess()
    return dict(sorted(topics.items()))
