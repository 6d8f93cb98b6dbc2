"""Inflates compressed WebSocket messages within a limit (permessage-deflate, RFC 7692), and accepts offers of it.

Autobahn would answer 400 to an offer that it cannot accept, refuse an incompressible message at the limit, and buffer
input after the end of a stream; so it never sees compression. Each message is inflated separately: an idle connection
has no window. Output is not compressed; all subscribers share it.
"""

import re
import zlib
from typing import Any

from fleximq.dialects.websocket.close_code import INVALID_PAYLOAD, TOO_BIG, WebSocketFault

#: The largest window; it reads streams of all smaller ones that may be negotiated.
_WINDOW = -zlib.MAX_WBITS
#: Removed by every sender from the end of a message (RFC 7692, section 7.2.1).
_TAIL = b"\x00\x00\xff\xff"
#: Memory of an unfinished message: the window and tables of zlib.
WINDOW_BYTES = 1 << 16

#: The name of the extension.
DEFLATE = "permessage-deflate"
_FLAG = re.compile("")
#: The sizes of a window that may be negotiated (RFC 7692, section 7.1.2); zlib has none of 8.
_BITS = re.compile("=(9|1[0-5])")
#: What may follow the name of a parameter. The client's window may be announced without a size.
_PARAMETERS = {
    "client_max_window_bits": re.compile("(=(9|1[0-5]))?"),
    "client_no_context_takeover": _FLAG,
    "server_max_window_bits": _BITS,
    "server_no_context_takeover": _FLAG,
}


def acceptDeflate(offers: str) -> str | None:
    """Return the answer to the first offer of permessage-deflate that can be accepted; None without one.

    :param offers: the values of the fields Sec-WebSocket-Extensions, separated by commas. An offer with an unknown or
        repeated parameter, or a wrong value, is declined (RFC 7692, section 5.1), as are other extensions.
    """
    for offer in offers.split(","):
        name, *parameters = (each.strip() for each in offer.split(";"))
        pairs = [_parameter(each) for each in parameters]
        found = dict(pairs)
        if name.lower() != DEFLATE or len(found) < len(pairs):
            continue
        if all(key in _PARAMETERS and _PARAMETERS[key].fullmatch(value) for key, value in pairs):
            answered = [each for each in ("server_no_context_takeover", "server_max_window_bits") if each in found]
            return "; ".join([DEFLATE, *(each + found[each] for each in answered), "client_no_context_takeover"])
    return None


def _parameter(text: str) -> tuple[str, str]:
    """Return the name of a parameter, and its value without quotes after "="; "" without a value."""
    name, equals, value = text.partition("=")
    return name.strip().lower(), equals + value.strip().removeprefix('"').removesuffix('"')


class Inflation:
    """Inflates messages of at most ``limit`` bytes one after another; ``gained`` counts bytes added by inflation.

    :param accepted: the answer to the offer that was accepted.
    """

    __slots__ = ("_left", "_limit", "_stream", "accepted", "gained")

    def __init__(self, limit: int, accepted: str = DEFLATE) -> None:
        self.accepted = accepted
        self._limit = limit
        self._left = limit
        self._stream: Any = None
        self.gained = 0

    @property
    def isInside(self) -> bool:
        """Whether a message is unfinished."""
        return self._stream is not None

    def begin(self) -> None:
        """Begin a message."""
        self._left = self._limit
        self._stream = zlib.decompressobj(_WINDOW)

    def inflate(self, data: bytes) -> bytes:
        """Return the inflated bytes of a part of a message.

        :raises WebSocketFault: the message exceeds the limit, after at most one byte more was inflated, or is not a
            deflate stream.
        """
        if self._stream.eof:
            return b""
        try:
            inflated: bytes = self._stream.decompress(data, self._left + 1)
        except zlib.error as error:
            raise _corrupt("the message is not deflated") from error
        self._left -= len(inflated)
        self.gained += len(inflated) - len(data)
        if self._left < 0:
            raise WebSocketFault(TOO_BIG, tooBig(self._limit))
        return inflated

    def end(self) -> None:
        """End a message and free its window.

        :raises WebSocketFault: the stream does not end with the message.
        """
        stream, self._stream = self._stream, None
        try:
            if stream.eof or not stream.decompress(_TAIL, 1):
                return
        except zlib.error:
            pass
        raise _corrupt("the message is cut off")


def tooBig(limit: int) -> str:
    """Return the text for a message over its limit."""
    return f"a message may have {limit} bytes"


def _corrupt(words: str) -> WebSocketFault:
    return WebSocketFault(INVALID_PAYLOAD, f"received WebSocket message cannot be decompressed: {words}")
