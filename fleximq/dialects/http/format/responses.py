"""The bytes of HTTP responses, and the statuses by which errors are answered (docs/reference/dialects.rst, "HTTP")."""

from collections.abc import Sequence
from functools import lru_cache
from http import HTTPStatus

import msgspec

from fleximq.dialects.connection.error_codes import ErrorCodes, codeOf
from fleximq.dialects.http.format.request_head import CHALLENGES
from fleximq.errors import (
    AuthenticationFailed,
    BrokerError,
    ClientNotFound,
    InvalidRouting,
    JoinRejected,
    NotKept,
    SubscriptionFailed,
    Unfit,
)

#: The content type of values and errors.
JSON = "application/json"
#: Errors that have another status than the FlexiMQ document gives them.
_CODES: ErrorCodes = (
    (AuthenticationFailed, 401),
    (JoinRejected, 403),
    (Unfit, 422),
    (NotKept, 503),
    (ClientNotFound, 404),
    (InvalidRouting, 400),
    (SubscriptionFailed, 422),
)
#: After these statuses, a client should wait before it tries again.
_BUSY = frozenset({429, 503})
_COMMON = (
    "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nCross-Origin-Resource-Policy: same-origin\r\n"
    "Content-Security-Policy: default-src 'none'; frame-ancestors 'none'; sandbox\r\n"
)


def statusOf(error: BrokerError) -> int:
    """Return the status of HTTP for an error."""
    return codeOf(error, _CODES, int(error.status))


def errorFields(status: int, wait: float = 1.0) -> tuple[str, ...]:
    """Return the header fields that belong to an error; ``wait``: seconds after which a client may try again."""
    if status == 401:
        return tuple(f"WWW-Authenticate: {challenge}" for challenge in CHALLENGES)
    return (f"Retry-After: {max(1, int(-(-wait // 1)))}",) if status in _BUSY else ()


def jsonBody(value: object) -> bytes:
    """Return a value as JSON on one line."""
    return msgspec.json.encode(value) + b"\n"


def errorBody(sentence: str) -> bytes:
    """Return the body of an error."""
    return jsonBody({"error": sentence.encode("utf-8", "replace").decode()})


def response(status: int, body: bytes, kind: str, connection: str, fields: Sequence[str], withBody: bool) -> bytes:
    """Return a complete response; ``connection`` is the value of that field, "" to leave it out."""
    head = responseHead(status, kind, tuple(fields))
    end = _ENDS[connection]
    if status == HTTPStatus.NO_CONTENT:
        return head + end
    return b"%bContent-Length: %d\r\n%b%b" % (head, len(body), end, body if withBody else b"")


_ENDS = {"": b"\r\n", "close": b"Connection: close\r\n\r\n", "keep-alive": b"Connection: keep-alive\r\n\r\n"}


@lru_cache(maxsize=256)
def responseHead(status: int, kind: str, fields: tuple[str, ...]) -> bytes:
    """Return the status line and the header fields, without those for the body's length and the connection, and without
    the empty line.
    """
    lines = [f"HTTP/1.1 {status} {_phrase(status)}", *fields]
    if kind:
        lines.append(f"Content-Type: {kind}")
    return ("\r\n".join(lines) + f"\r\n{_COMMON}").encode("latin-1")


def _phrase(status: int) -> str:
    try:
        return HTTPStatus(status).phrase
    except ValueError:
        return "Error"
