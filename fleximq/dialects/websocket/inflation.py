"""What comes in compressed over a WebSocket (permessage-deflate, RFC 7692), inflated within a bound.

Autobahn negotiates the extension and says when a message begins and ends. This takes the place of its inflater,
which does not count exactly (it refuses an incompressible message at the limit) and hoards what follows the end of
a finished stream. Every message is inflated by itself, so an idle connection holds no window. Nothing is ever
compressed on the way out: one encoded frame serves all subscribers.
"""

import zlib
from collections.abc import Sequence
from typing import Any

from autobahn.exception import PayloadCorruptError, PayloadExceededError
from autobahn.websocket.compress import PerMessageDeflateOffer, PerMessageDeflateOfferAccept

#: The extension may be negotiated with smaller windows; the largest reads them all.
_WINDOW = -zlib.MAX_WBITS
#: What every sender takes off the end of a message (RFC 7692, section 7.2.1).
_TAIL = b"\x00\x00\xff\xff"


def acceptDeflate(offers: Sequence[object]) -> PerMessageDeflateOfferAccept | None:
    """Return how to accept the first offer of permessage-deflate, None if there is none."""
    for offer in offers:
        if isinstance(offer, PerMessageDeflateOffer):
            return PerMessageDeflateOfferAccept(offer, request_no_context_takeover=True)
    return None


class Inflation:
    """Inflates one message after another.

    :param limit: the most bytes one message may inflate to.
    """

    EXTENSION_NAME = "permessage-deflate"

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._left = limit
        self._stream: Any = None

    def start_decompress_message(self) -> None:
        """Begin a message."""
        self._left = self._limit
        self._stream = zlib.decompressobj(_WINDOW)

    def decompress_message_data(self, data: bytes, max_output_len: int | None = None) -> bytes:
        """Return what these bytes of the message inflate to.

        :raises PayloadExceededError: the message is over the limit; one byte more than that was inflated at most.
        :raises PayloadCorruptError: this is no deflate stream.
        """
        if self._stream.eof:
            return b""
        try:
            inflated: bytes = self._stream.decompress(data, self._left + 1)
        except zlib.error as error:
            raise PayloadCorruptError("the message is not deflated") from error
        self._left -= len(inflated)
        if self._left < 0:
            raise PayloadExceededError("the message inflates to more than is allowed")
        return inflated

    def end_decompress_message(self) -> None:
        """End a message, and let go of its window.

        :raises PayloadCorruptError: the stream does not end where the message does.
        """
        stream, self._stream = self._stream, None
        try:
            if stream.eof or not stream.decompress(_TAIL, 1):
                return
        except zlib.error:
            pass
        raise PayloadCorruptError("the message is cut off")
