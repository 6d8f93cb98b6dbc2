"""Finds the end of a PROXY header, version 1 or 2, in the first bytes of a connection (HAProxy's proxy-protocol.txt).

The header may arrive in any pieces. Twisted's parsers need 8 or 16 bytes at once, ``PROXY UNKNOWN`` in its longer form,
and raise for some malformed addresses, so they get only complete headers that were checked here.
"""

import re
from ipaddress import IPv4Address, IPv6Address

#: The longest header of version 2, in bytes; the specification recommends 536. And of version 1, section 2.1.
HEADER_BYTES, LINE_BYTES = 2048, 107

_SIGNATURE, _FIXED_BYTES = b"\r\n\r\n\0\r\nQUIT\n", 16
_WORD = b"PROXY "
_LINE = re.compile(rb"PROXY (?:UNKNOWN.*|TCP(?:(4)|6) ([\dA-Fa-f.:]+) ([\dA-Fa-f.:]+) (\d{1,5}) (\d{1,5}))", re.DOTALL)


def splitHeader(received: bytes) -> tuple[bytes, bytes] | None:
    """Return the header and the bytes after it, None if it is incomplete; raises ValueError if it is malformed."""
    if received.startswith(_SIGNATURE):
        if received[12:13] and received[12] >> 4 != 2:
            raise ValueError("its version is not 2")
        length = _FIXED_BYTES + int.from_bytes(received[14:16], "big")
        if len(received) < _FIXED_BYTES:
            return None
        if length > HEADER_BYTES:
            raise ValueError(f"it is longer than {HEADER_BYTES} bytes")
        return None if len(received) < length else (received[:length], received[length:])
    if received.startswith(_WORD):
        end = received.find(b"\r\n", 0, LINE_BYTES)
        if end >= 0:
            return _checkedLine(received[:end]), received[end + 2 :]
        if len(received) >= LINE_BYTES:
            raise ValueError(f"its line has no end within {LINE_BYTES} bytes")
        return None
    if _SIGNATURE.startswith(received) or _WORD.startswith(received):
        return None
    raise ValueError("it is missing")


def _checkedLine(line: bytes) -> bytes:
    found = _LINE.fullmatch(line)
    if found is None:
        raise ValueError("its line is malformed")
    if found[2] is None:
        return b"PROXY UNKNOWN \r\n"  # the rest of the line has to be ignored
    kind = IPv4Address if found[1] else IPv6Address
    for address in found.group(2, 3):
        kind(address.decode())
    if max(map(int, found.group(4, 5))) > 0xFFFF:
        raise ValueError("a port is over 65535")
    return line + b"\r\n"
