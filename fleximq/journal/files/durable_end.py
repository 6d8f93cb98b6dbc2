"""DIR/end: how far the journal goes, for other processes that read it while the broker writes.

64 bytes that are mapped into memory, little-endian: magic ``FXJE0001`` 8s, turn u64, position u64, offset u64, time
i64 (microseconds since 1970), 16 zero bytes, turn u64. Whoever reads takes the 64 bytes at once and tries again while
the two turns differ or are odd. Position and offset are those behind the last record that is committed; the file says
nothing about what a crash left, so a journal without a broker is read up to its last whole frame.
"""

from struct import Struct

from fleximq.journal.files.file_system import Files

END = "end"
BYTES = 64

_MAGIC = b"FXJE0001"
_WHOLE = Struct("<8sQQQq16xQ")
_turn = Struct("<Q")
_values = Struct("<QQq")
_VALUES_AT, _FIRST_TURN_AT, _LAST_TURN_AT = 16, 8, 56


class DurableEnd:
    """The writing side; only the broker that holds the lock may have one.

    :raises OSError: the file cannot be made.
    """

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        descriptor = files.openLock(f"{folder}/{END}")
        try:
            if files.size(descriptor) != BYTES:
                files.truncate(descriptor, BYTES)
            self._memory = files.map(descriptor, BYTES)
        finally:
            files.close(descriptor)
        self._turn = 0

    def publish(self, position: int, offset: int, time: int) -> None:
        """Say that all before this position and this offset is committed."""
        memory = self._memory
        turn = self._turn + 1
        _turn.pack_into(memory, _FIRST_TURN_AT, turn)
        _values.pack_into(memory, _VALUES_AT, position, offset, time)
        turn += 1
        _turn.pack_into(memory, _LAST_TURN_AT, turn)
        memory[: _FIRST_TURN_AT + 8] = _MAGIC + _turn.pack(turn)
        self._turn = turn

    def close(self) -> None:
        """Leave the file as it is."""
        self._memory.close()


def readEnd(content: bytes) -> tuple[int, int, int] | None:
    """Return position, offset and time out of the 64 bytes; None if they are just being written, or none of ours."""
    if len(content) != BYTES:
        return None
    magic, first, position, offset, time, last = _WHOLE.unpack(content)
    if magic != _MAGIC or first != last or first % 2:
        return None
    return position, offset, time
