"""A buffer for the bytes of an unfinished frame that joins each byte once, however the bytes arrive.

A scanner calls :meth:`ReceiveBuffer.take` for bytes to read, and returns the rest with :meth:`ReceiveBuffer.keep`
together with the number of bytes it needs. Until they have arrived, chunks are only collected: a 16 MiB frame in 64 KiB
chunks is joined once, not 256 times. With an empty buffer a read passes through untouched. The buffer has no limit; the
scanner refuses a length before it asks for its bytes.
"""

#: Chunks shorter than this are collected in one growing bytearray: as separate objects they would need more memory
#: than their content when a peer sends one byte at a time.
SMALL_BYTES = 2048
#: The pieces of an empty buffer, which most idle connections have two of; a list of its own would take 56 bytes.
_NO_PIECES: list[bytes | bytearray] = []


class ReceiveBuffer:
    """Collects the chunks of a stream until there are enough bytes. ``buffered`` is their number."""

    __slots__ = ("_needed", "_pieces", "buffered")

    def __init__(self) -> None:
        self._pieces = _NO_PIECES
        self._needed = 0
        self.buffered = 0

    @property
    def missing(self) -> int:
        """The number of bytes still missing from the last :meth:`keep`; at least 1."""
        return max(1, self._needed - self.buffered)

    def take(self, data: bytes) -> bytes | None:
        """Return and release all unread bytes, ``data`` last; None while they are fewer than :meth:`keep` asked for."""
        if not self.buffered:
            return data
        self.add(data)
        return None if self.buffered < self._needed else self.drain()

    def keep(self, rest: bytes, needed: int) -> None:
        """Buffer the unread rest of the bytes last taken.

        :param needed: the number of bytes, ``rest`` included, before :meth:`take` returns any.
        """
        self._needed = needed
        self.add(rest)

    def add(self, piece: bytes) -> None:
        """Buffer one more chunk, regardless of the number needed."""
        if not piece:
            return
        if self._pieces is _NO_PIECES:
            self._pieces = []
        self.buffered += len(piece)
        if len(piece) >= SMALL_BYTES:
            self._pieces.append(piece)
        elif self._pieces and isinstance(last := self._pieces[-1], bytearray):
            last += piece
        else:
            self._pieces.append(bytearray(piece))

    def drain(self) -> bytes:
        """Return all buffered bytes, joined, and empty the buffer."""
        joined = b"".join(self._pieces)
        self._pieces = _NO_PIECES
        self.buffered = self._needed = 0
        return joined
