"""What a web service that judges credentials answers."""

import json
import math
from typing import Any

from twisted.internet.defer import Deferred
from twisted.internet.protocol import Protocol, connectionDone
from twisted.python.failure import Failure
from twisted.web.client import ResponseDone
from twisted.web.http import PotentialDataLoss

from fleximq.limits import KIBIBYTE
from fleximq.security.checkers.claims import WrongClaim, grantsOf, rolesOf
from fleximq.security.names import isName
from fleximq.security.principal import Principal

#: An answer may have so many bytes.
LARGEST = 64 * KIBIBYTE


def body(response: Any) -> Deferred[bytes]:
    """Return the body of an answer. It fails with :exc:`WrongClaim` if that is over :data:`LARGEST`."""
    reader = _Reader()
    response.deliverBody(reader)
    return reader.done


def principalOf(answer: bytes, proof: str) -> Principal:
    """Return whom the service has named.

    :param proof: by which the checker knows the principal as its own.
    :raises WrongClaim: it has not done it in the right form.
    """
    try:
        said = json.loads(answer)
    except (ValueError, RecursionError):
        raise WrongClaim("the answer is no JSON") from None
    if not isinstance(said, dict) or not isName(said.get("principal")):
        raise WrongClaim("the answer names no principal")
    expires = said.get("expires")
    if expires is not None and (isinstance(expires, bool) or not isinstance(expires, int | float)):
        raise WrongClaim("the answer has a time of expiry that is no number")
    if expires is not None and not math.isfinite(expires):
        raise WrongClaim("the answer has a time of expiry that never comes")
    return Principal(
        said["principal"],
        rolesOf(said.get("roles")),
        grantsOf(said["permissions"]) if "permissions" in said else {},
        expires=expires,
        proof=proof,
    )


class _Reader(Protocol):
    """Collects a body."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self.done: Deferred[bytes] = Deferred(lambda _: self._abort())

    def dataReceived(self, data: bytes) -> None:
        """Take a piece, unless it is too much."""
        self._size += len(data)
        if self._size <= LARGEST:
            self._pieces.append(data)
        elif not self.done.called:
            self.done.errback(WrongClaim("the answer is too large"))
            self._abort()

    def connectionLost(self, reason: Failure = connectionDone) -> None:
        """Give the body, if it is whole."""
        if self.done.called:
            return
        if reason.check(ResponseDone, PotentialDataLoss):
            self.done.callback(b"".join(self._pieces))
        else:
            self.done.errback(reason)

    def _abort(self) -> None:
        abort = getattr(self.transport, "abortConnection", None) or getattr(self.transport, "loseConnection", None)
        if abort is not None:
            abort()
