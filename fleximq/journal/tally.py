"""Counts what a frame has of each topic, from its records; a frame that is being written brings its count along."""

from collections.abc import Mapping

from fleximq.records import Batch, Bounds

#: A topic's count while it is added up: the fields of :class:`fleximq.records.Bounds`.
Count = list[int]


def tallyOf(batch: Batch) -> dict[str, Bounds]:
    """Return what a batch has of each topic; a batch of one topic costs as much as a record."""
    places = batch.topicOf
    if not len(batch):
        return {}
    if len(batch.topics) == 1:
        topic = batch.topics[0]
        offsets, times = batch.offsets, batch.timestamps
        return {topic: Bounds(offsets[0], offsets[-1], times[0], times[-1], len(batch), batch.size)}
    counts: dict[int, Count] = {}
    for place, offset, time, header, payload in zip(
        places, batch.offsets, batch.timestamps, batch.headers, batch.payloads, strict=True
    ):
        count = counts.get(place)
        if count is None:
            counts[place] = [offset, offset, time, time, 1, len(header) + len(payload)]
        else:
            count[1] = offset
            count[3] = time
            count[4] += 1
            count[5] += len(header) + len(payload)
    return {batch.topics[place]: Bounds(*count) for place, count in counts.items()}


def moved(tally: Mapping[str, Bounds], by: int) -> dict[str, Bounds]:
    """Return a tally whose offsets are larger by so much."""
    return {
        topic: Bounds(first + by, last + by, firstTime, lastTime, count, size)
        for topic, (first, last, firstTime, lastTime, count, size) in tally.items()
    }


def addTo(counts: dict[str, Count], tally: Mapping[str, Bounds], by: int = 0) -> None:
    """Add what else there is, with offsets that are larger by so much.

    A transaction may be counted when all around it has been.
    """
    for topic, (first, last, firstTime, lastTime, count, size) in tally.items():
        known = counts.get(topic)
        if known is None:
            counts[topic] = [first + by, last + by, firstTime, lastTime, count, size]
        else:
            known[0] = min(known[0], first + by)
            known[1] = max(known[1], last + by)
            known[2] = min(known[2], firstTime)
            known[3] = max(known[3], lastTime)
            known[4] += count
            known[5] += size
