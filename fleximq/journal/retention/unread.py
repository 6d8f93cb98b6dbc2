"""What a consumer group has not read of segments from which something is about to be taken out, in words."""

import json
from collections.abc import Iterator, Mapping, Sequence

from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.retention.retention_rules import Expiry


class Unread:
    """Says it once for each group and segment; neighbouring segments are one sentence."""

    def __init__(self) -> None:
        self._said: dict[tuple[int, str], None] = {}

    def of(self, going: Sequence[Segment], reading: Mapping[str, int], expiry: Expiry) -> Iterator[tuple[str, int]]:
        """Yield a sentence for each run of segments that go, and about how many records it is about.

        :param going: these, in their order.
        :param reading: the offset that each group reads next.
        """
        bases = {segment.base for segment in going}
        self._said = {key: None for key in self._said if key[0] in bases and key[1] in reading}
        for group, offset in reading.items():
            first = next = records = end = 0
            for segment in going:
                gone = self._gone(segment, group, offset, expiry)
                if gone is None:
                    continue
                if records and segment.base != end:
                    yield _sentence(group, first, next), records
                    records = 0
                first, next, records = first if records else gone[0], gone[1], records + gone[2]
                end = segment.end
            if records:
                yield _sentence(group, first, next), records

    def _gone(self, segment: Segment, group: str, offset: int, expiry: Expiry) -> tuple[int, int, int] | None:
        """Return what of a segment goes that a group has not read; None if nothing does, or it was said."""
        key = segment.base, group
        if segment.next <= offset or key in self._said:
            return None
        gone = expiry.gone(segment, offset)
        if not gone[2]:
            return None
        self._said[key] = None
        return gone


def _sentence(group: str, first: int, next: int) -> str:
    return (
        f"the consumer group {json.dumps(group, ensure_ascii=False)} has not read the offsets {first} to {next - 1}, "
        f"and what has expired of them is removed now"
    )
