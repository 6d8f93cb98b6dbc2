"""Errors in the words of the BlipMQ document, "Error Codes": one NACK each."""

from fleximq.errors import BadRequest, BrokerError, Forbidden, NotFound, TooManyRequests, Unauthorized
from fleximq.wire.blipmq_payload import Nack


class UnsupportedVersion(BadRequest):
    """A HELLO asked for another version of the protocol (426)."""


class TurnedAway(Unauthorized):
    """This peer may not come in at all (401)."""

    closes = True


#: The code of each kind of error; the first that fits is taken.
_CODES: tuple[tuple[type[BrokerError], int], ...] = (
    (UnsupportedVersion, 426),
    (BadRequest, 400),
    (Unauthorized, 401),
    (Forbidden, 401),
    (NotFound, 404),
    (TooManyRequests, 429),
)


def nackOf(error: BrokerError) -> Nack:
    """Return code and words for an error; what the document has no code for is 500."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), 500)
    return Nack(code, "not permitted" if isinstance(error, Forbidden) else str(error))
