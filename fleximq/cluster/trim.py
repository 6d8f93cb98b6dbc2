"""Removes expired segments from a stream, and afterwards from copies (/explanation/cluster, Trimming).

A stream begins with a segment, so that a new copy begins with a SEGMENT frame and a checkpoint. A late request of a
deposed owner removes only expired segments. Without an answer of the store, ClusterError is raised.
"""

from fleximq.cluster.interfaces import ICluster
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.journal.format.frame import FrameError, FrameKind, readHeader


async def trimStream(cluster: ICluster, shard: int, position: int) -> bool:
    """Remove all messages before the segment that begins at this position; False if it is not found there."""
    bounds = await cluster.bounds(shard)
    low, high = bounds.first, bounds.last
    while low < high:
        middle = (low + high) // 2
        piece = await cluster.slot(shard, middle)
        if piece is None:
            return False
        if piece.end > position:
            high = middle
        else:
            low = middle + 1
    if await _segmentAt(cluster, shard, low) != position:
        return False
    await cluster.purge(shard, low)
    return True


async def trimCopy(cluster: ICluster, shard: int, copy: StreamReplica) -> None:
    """Remove the segments that the stream does not have any more. Raises OSError if one cannot be removed."""
    bounds = await cluster.bounds(shard)
    position = await _segmentAt(cluster, shard, bounds.first)
    if position is not None:
        copy.trim(position)


async def _segmentAt(cluster: ICluster, shard: int, sequence: int) -> int | None:
    """Return the position of the segment that begins with a message; None if none does."""
    piece = await cluster.slot(shard, sequence)
    if piece is None:
        return None
    try:
        header = readHeader(piece.data)
    except FrameError:
        return None
    return header.position if header.kind == FrameKind.SEGMENT else None
