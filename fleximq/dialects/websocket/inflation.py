"""Inflates compressed WebSocket messages within a limit (permessage-deflate, RFC 7692).

Autobahn's own inflater refuses an incompressible message at the limit and buffers input after the end of a stream. Each
message is inflated separately: an idle connection has no window. Output is not compressed; all subscribers share it.
"""

import re
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

from autobahn.exception import PayloadCorruptError, PayloadExceededError
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept

#: The largest window; it reads streams of all smaller ones that may be negotiated.
_WINDOW = -zlib.MAX_WBITS
#: Removed by every sender from the end of a message (RFC 7692, section 7.2.1).
_TAIL = b"\x00\x00\xff\xff"
#: Memory of an unfinished message: the window and tables of zlib.
WINDOW_BYTES = 1 << 16


#: The sizes of a window that may be negotiated (RFC 7692, section 7.1.2); zlib has none of 8.
_BITS = re.compile("9|1[0-5]")


def isDeflateOffer(name: str, parameters: Mapping[str, Sequence[Any]]) -> bool:
    """Return whether this is an offer of permessage-deflate that can be accepted; others are declined (RFC 7692, 5.1).

    Autobahn would answer 400 to an unknown or repeated parameter, or a wrong value.
    """
    if name != Inflation.EXTENSION_NAME:
        return False
    try:
        PerMessageDeflateOffer.parse(parameters)
    except Exception:  # it raises no other kind
        return False
    return all(each is True or _BITS.fullmatch(each) for [each] in parameters.values())


def acceptDeflate(offers: Sequence[object]) -> PerMessageDeflateOfferAccept | None:
    """Return the acceptance of the first permessage-deflate offer, None without one."""
    for offer in offers:
        if isinstance(offer, PerMessageDeflateOffer):
            return PerMessageDeflateOfferAccept(offer, request_no_context_takeover=True)
    return None


class Inflation:
    """Inflates messages of at most ``limit`` bytes one after another; ``gained`` counts bytes added by inflation."""

    EXTENSION_NAME = "permessage-deflate"

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._stream: Any = None
        self.gained = 0

    @property
    def isInside(self) -> bool:
        """Whether a message is unfinished."""
        return self._stream is not None

    def start_decompress_message(self) -> None:
        """Start a message."""
        self._left = self._limit
        self._stream = zlib.decompressobj(_WINDOW)

    def decompress_message_data(self, data: bytes, max_output_len: int | None = None) -> bytes:
        """Return the inflated bytes of a part of a message.

        :raises PayloadExceededError: the message exceeds the limit; at most one byte more was inflated.
        :raises PayloadCorruptError: the input is not a deflate stream.
        """
        if self._stream.eof:
            return b""
        try:
            inflated: bytes = self._stream.decompress(data, self._left + 1)
        except zlib.error as error:
            raise PayloadCorruptError("the message is not deflated") from error
        self._left -= len(inflated)
        self.gained += len(inflated) - len(data)
        if self._left < 0:
            raise PayloadExceededError("the message inflates to more than is allowed")
        return inflated

    def end_decompress_message(self) -> None:
        """End a message and free its window.

        :raises PayloadCorruptError: the stream does not end with the message.
        """
        stream, self._stream = self._stream, None
        try:
            if stream.eof or not stream.decompress(_TAIL, 1):
                return
        except zlib.error:
            pass
        raise PayloadCorruptError("the message is cut off")
