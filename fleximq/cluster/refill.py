"""Appends the frames of a folder to a stream that has less of them, unchanged (/explanation/cluster, Refilling)."""

from fleximq.cluster.interfaces import HEADROOM, ClusterError, ICluster
from fleximq.cluster.stream_log import StreamLog
from fleximq.cluster.stream_replica import StreamReplica, endOf, nextOf
from fleximq.journal.format.frame import FrameError, FrameKind, completeFrame

#: The share of the copy's bytes that the stream needs besides them.
_MORE = 1.1


async def refill(cluster: ICluster, shard: int, copy: StreamReplica, log: StreamLog) -> int:
    """Append the frames that the stream lacks; return the number of bytes. No node may own the shard meanwhile.

    :raises ClusterError: this copy does not continue the stream, or is damaged, which is checked before the first
        append; or the stream has no room or does not answer.
    """
    bounds = await cluster.bounds(shard)
    position, nextOffset, previous = copy.start, 1, 0
    if bounds.last >= bounds.first:
        last = await cluster.slot(shard, bounds.last)
        if last is None or last.left:
            raise ClusterError("the end of the stream cannot be read")
        position, nextOffset, previous = last.end, last.next, _lastCrc(last.data)
    _check(copy, position, previous)
    missing = copy.end - position
    if bounds.limit and bounds.bytes + missing * _MORE > bounds.limit * 7 / 8:
        raise ClusterError(f"the stream may have {bounds.limit} bytes, too few for {missing} more")
    sequence, end, data = bounds.last, position, bytearray()
    for each in copy.framesFrom(position):
        header = each.header
        if data and (header.kind == FrameKind.SEGMENT or len(data) + header.length > cluster.maxPayload - HEADROOM):
            sequence = await log.put(sequence, bytes(data), end, nextOffset)
            data.clear()
        data += each.frame
        end, nextOffset = endOf(each), max(nextOffset, nextOf(each))
        if header.kind == FrameKind.REMOVED:
            # The next frame is not the next byte of the file.
            sequence = await log.put(sequence, bytes(data), end, nextOffset)
            data.clear()
    if data:
        await log.put(sequence, bytes(data), end, nextOffset)
    return missing


async def replace(cluster: ICluster, shard: int, copy: StreamReplica, log: StreamLog) -> int:
    """As :func:`refill`, after everything was removed from the stream. A late append of its owner makes it fail."""
    _check(copy, copy.start, 0)
    bounds = await cluster.bounds(shard)
    while bounds.last >= bounds.first:
        await cluster.purge(shard, bounds.last + 1)
        bounds = await cluster.bounds(shard)
    copy.readAgain()
    return await refill(cluster, shard, copy, log)


def _lastCrc(data: bytes) -> int:
    """Return the check sum of a message's last frame; 0 if the message begins within a frame."""
    crc = at = 0
    try:
        while at < len(data):
            header, _ = completeFrame(data, at)
            crc, at = header.crc, at + header.length
    except FrameError:
        return 0
    return crc


def _check(copy: StreamReplica, position: int, previous: int) -> None:
    """Check that the frames of a copy continue a stream that ends at a position, with a frame of this check sum."""
    first = None
    for each in copy.framesFrom(position):
        first = first or each.header
    if first is None:
        raise ClusterError(f"the stream ends at position {position}, so it has as much as this copy")
    isChained = first.kind == FrameKind.SEGMENT or previous in (0, first.previous)
    if first.position != position or not isChained:
        words = f"the frame at {first.position} does not follow the stream's last one, which ends at {position}"
        raise ClusterError(f"this copy does not continue the stream: {words}")
