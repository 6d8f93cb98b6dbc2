"""Where the bytes of an unfinished frame wait, so that every byte is joined once however it arrives.

A scanner asks with :meth:`ReceiveBuffer.take` for bytes worth looking at, and gives back with
:meth:`ReceiveBuffer.keep` what it could not use, saying how many bytes it needs. Until they are there, pieces are
only collected: a 16 MiB frame in 64 KiB pieces is joined once, not 256 times. Where nothing is held, a read passes
through untouched. The buffer sets no limit; the scanner refuses a length before it asks for its bytes.
"""

#: Pieces shorter than this are gathered in one growing bytearray: as objects of their own they would weigh more
#: than what they hold when a peer sends a byte at a time.
SMALL_BYTES = 2048


class ReceiveBuffer:
    """Collects the pieces of a stream until there are enough of them. ``buffered`` is the number of bytes that wait."""

    __slots__ = ("_needed", "_pieces", "buffered")

    def __init__(self) -> None:
        self._pieces: list[bytes | bytearray] = []
        self._needed = 0
        self.buffered = 0

    @property
    def missing(self) -> int:
        """How many bytes have to come before looking again is of use; at least 1."""
        return max(1, self._needed - self.buffered)

    def take(self, data: bytes) -> bytes | None:
        """Return everything received and not yet used, ``data`` last; or None and wait, while it is too little.

        What is returned is no longer held. Too little is less than the last :meth:`keep` asked for.
        """
        if not self.buffered:
            return data
        self.add(data)
        return None if self.buffered < self._needed else self.drain()

    def keep(self, rest: bytes, needed: int) -> None:
        """Hold what could not be used of the bytes last taken.

        :param rest: the beginning of an unfinished frame; may be empty.
        :param needed: how many bytes, ``rest`` included, there must be before looking again is of use.
        """
        self._needed = needed
        self.add(rest)

    def add(self, piece: bytes) -> None:
        """Hold one more piece, whatever was asked for."""
        self.buffered += len(piece)
        if len(piece) >= SMALL_BYTES:
            self._pieces.append(piece)
        elif self._pieces and isinstance(last := self._pieces[-1], bytearray):
            last += piece
        elif piece:
            self._pieces.append(bytearray(piece))

    def drain(self) -> bytes:
        """Return all that is held, joined, and hold nothing any more."""
        joined = b"".join(self._pieces)
        self._pieces.clear()
        self.buffered = self._needed = 0
        return joined
