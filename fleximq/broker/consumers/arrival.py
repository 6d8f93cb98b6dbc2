"""What a start remembers of the records that it goes through: enough to put them into queues that were opened late."""

from array import array
from collections.abc import Sequence
from itertools import compress
from typing import NamedTuple

from fleximq.values.records import QOS1, Batch


class Arrival(NamedTuple):
    """What queues need of a batch; it holds none of its bytes.

    ``topicOf`` is None where all records are of the first topic, ``contents`` None where all are of QoS1. ``time`` is
    that of the last record.
    """

    topics: Sequence[str]
    topicOf: Sequence[int] | None
    offsets: Sequence[int]
    contents: Sequence[int] | None
    time: int

    @classmethod
    def of(cls, batch: Batch) -> "Arrival":
        """Return this of a batch."""
        topics, offsets, contents = batch.topics, batch.offsets, batch.contents
        tracked = all(code & QOS1 for code in set(contents))
        return cls(
            topics,
            None if len(topics) == 1 else array("I", batch.topicOf),
            offsets if isinstance(offsets, range) else array("Q", offsets),
            None if tracked else array("H", contents),
            batch.timestamps[-1],
        )

    def places(self) -> Sequence[int]:
        """Return the places of the topics that have records."""
        return (0,) if self.topicOf is None else sorted(set(self.topicOf))

    def only(self, place: int) -> "Arrival":
        """Return what is of one topic."""
        topicOf, contents = self.topicOf, self.contents
        if topicOf is None:
            return self
        mine = [of == place for of in topicOf]
        return self._replace(
            offsets=list(compress(self.offsets, mine)),
            contents=None if contents is None else list(compress(contents, mine)),
        )

    def tracked(self) -> Sequence[int]:
        """Return the offsets of those that are of QoS1."""
        if self.contents is None:
            return self.offsets
        return [offset for offset, code in zip(self.offsets, self.contents, strict=True) if code & QOS1]
