"""The codes by which dialects with codes of their own answer an error. FlexiMQ sends the error's status itself.

In each table the first class that an error belongs to decides; all other errors are 500, in Identity their status.
"""

from fleximq.errors import (
    AuthenticationFailed,
    BadRequest,
    BrokerError,
    Forbidden,
    JoinRejected,
    NotFound,
    NotImplementedByBroker,
    SubscriptionFailed,
    TooLarge,
    TooManyRequests,
    Unauthorized,
    Unfit,
)

ErrorCodes = tuple[tuple[type[BrokerError], int], ...]


class UnsupportedVersion(BadRequest):
    """A HELLO requested an unsupported protocol version (426)."""


BLIPMQ_CODES: ErrorCodes = (
    (UnsupportedVersion, 426),
    (BadRequest, 400),
    (Unauthorized, 401),
    (Forbidden, 401),
    (NotFound, 404),
    (TooManyRequests, 429),
    (Unfit, 400),
)
MINIMQ_CODES: ErrorCodes = (
    (BadRequest, 400),
    (TooLarge, 400),
    (Unauthorized, 401),
    (AuthenticationFailed, 401),
    (JoinRejected, 403),
    (Forbidden, 403),
    (TooManyRequests, 429),
    (NotImplementedByBroker, 501),
    (Unfit, 400),
)
IDENTITY_CODES: ErrorCodes = (
    (SubscriptionFailed, 429),
    (AuthenticationFailed, 401),
    (JoinRejected, 403),
)


def codeOf(error: BaseException | None, codes: ErrorCodes, other: int = 500) -> int:
    """Return the code of an error in a table, ``other`` if it is not there."""
    return next((code for kind, code in codes if isinstance(error, kind)), other)
