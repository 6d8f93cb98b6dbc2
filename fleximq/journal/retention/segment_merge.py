"""Merges neighbouring segments without records into one file.

Their files exist because positions must be continuous while an earlier record is needed. The merged file begins at the
first of them, and its REMOVED frame ends where the last one ends. While the others still exist, also after a crash,
each is used itself, and that frame ends where the next file begins.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from fleximq.journal.files.file_system import Files, writeAll
from fleximq.journal.files.frame_scan import CompleteFrame, Window, framesOf
from fleximq.journal.files.open_segments import OpenSegments
from fleximq.journal.files.segment_index import scanSegment
from fleximq.journal.files.segment_summary import Segment
from fleximq.journal.format.control_frames import encodeRemoved
from fleximq.journal.format.frame import FrameKind, reseal, seal
from fleximq.journal.retention.segment_rewrite import replacementName

#: Maximum range of one merged file: after damage to it, this range is scanned.
MAX_MERGED_BYTES = 4 << 30


def isEmpty(segment: Segment) -> bool:
    """Tell whether a segment has no content left."""
    left = segment.counts or segment.staged or segment.transactions or segment.checkpoints or segment.lost
    return bool(segment.removed) and not left


def emptyRuns(segments: Iterable[Segment], span: int = MAX_MERGED_BYTES) -> Iterator[list[Segment]]:
    """Yield the neighbouring segments without content, two or more together."""
    run: list[Segment] = []
    for segment in segments:
        fits = isEmpty(segment) and (not run or (segment.base == run[-1].end and segment.end - run[0].base <= span))
        if not fits:
            if len(run) > 1:
                yield run
            run = []
        if isEmpty(segment):
            run.append(segment)
    if len(run) > 1:
        yield run


def writeMerged(files: Files, folder: str, run: Sequence[Segment], opened: OpenSegments) -> Segment | None:
    """Write and sync the file that will replace these, and return its content; None if one is damaged.

    :raises OSError: it cannot be written.
    """
    frames = [list(framesOf(opened.window(each), each.id, each.base, atHead=True)) for each in run]
    kinds = [[found.header.kind if isinstance(found, CompleteFrame) else None for found in each] for each in frames]
    if any(each != [FrameKind.SEGMENT, FrameKind.REMOVED] for each in kinds):
        return None
    head = frames[0][0]
    removed = [each[1].header for each in frames if isinstance(each[1], CompleteFrame)]
    assert isinstance(head, CompleteFrame)
    raw, previous = reseal(bytes(head.frame), 0)
    count = min(sum(header.count for header in removed), 0xFFFFFFFF)
    end = run[-1].end
    frame = encodeRemoved(end, removed[0].baseOffset, count, removed[0].firstTime, removed[-1].lastTime)
    sealed, _ = seal(frame, run[0].id, run[0].base + len(raw), previous, synced=True)
    return _write(files, f"{folder}/{replacementName(run[0].base)}", [raw, *sealed], run, end)


def _write(
    files: Files, path: str, buffers: list[bytes | memoryview], run: Sequence[Segment], end: int
) -> Segment | None:
    base = run[0].base
    if files.exists(path):
        files.remove(path)
    descriptor = files.create(path)
    try:
        try:
            writeAll(files, descriptor, buffers, 0)
            files.truncate(descriptor, end - base)
            files.sync(descriptor)
            scanned = scanSegment(Window(files, descriptor, base, end), run[0].id)
        finally:
            files.close(descriptor)
    except Exception:
        with suppress(OSError):
            files.remove(path)
        raise
    found = scanned.segment
    found.next = max(found.next, run[-1].next)
    found.clientIds = max(each.clientIds for each in run)
    return found
