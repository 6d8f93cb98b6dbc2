"""Says in a message when it was published, in letters that every dialect can carry."""

import time
from binascii import a2b_base64, b2a_base64

#: A message begins with its stamp, so it has at least these bytes.
STAMP_BYTES = 8
#: Of the clock's nanoseconds so many bytes are told: they last for three days.
_TOLD = 6
_MASK = (1 << 8 * _TOLD) - 1


def stamp() -> bytes:
    """Return the present moment of the machine's monotonic clock, which all processes share."""
    return b2a_base64((time.monotonic_ns() & _MASK).to_bytes(_TOLD, "big"), newline=False)


def age(payload: bytes, now: int) -> int:
    """Return how many nanoseconds before ``now`` (of that clock) a message was published."""
    return (now - int.from_bytes(a2b_base64(payload[:STAMP_BYTES]), "big")) & _MASK
