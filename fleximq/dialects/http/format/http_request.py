"""A parsed request of plain HTTP: its route, arguments, and the form of its body.

It is made once for equal heads, which a connection mostly repeats, so that it costs only a look-up afterwards.
"""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from fleximq.dialects.http.format.request_head import CREDENTIAL_PARAMETERS, HttpError, RequestHead
from fleximq.dialects.http.format.request_scanner import CHUNKED
from fleximq.dialects.http.format.routes import Parameter, Route, Routes, decoded
from fleximq.wire.payload_conversion import JSON_BYTES


class BodyKind(Enum):
    """How the body of a publication becomes messages."""

    JSON = "a value in JSON"
    LINES = "a value in JSON on each line"
    TEXT = "a string"
    MESSAGEPACK = "a value in MessagePack"
    BYTES = "bytes"


_KINDS = {
    "application/json": BodyKind.JSON,
    "application/x-ndjson": BodyKind.LINES,
    "application/jsonlines": BodyKind.LINES,
    "application/msgpack": BodyKind.MESSAGEPACK,
    "application/x-msgpack": BodyKind.MESSAGEPACK,
    "application/vnd.msgpack": BodyKind.MESSAGEPACK,
}
#: Decoding JSON holds up all other clients, so that it has a lower limit.
_DECODED = frozenset({BodyKind.JSON, BodyKind.LINES})


@dataclass(slots=True, eq=False)
class HttpRequest:
    """The head of a request, checked.

    ``length`` is that of its body, or CHUNKED; ``kind`` its form. ``keepsAlive``: the connection stays open after it.
    ``isUnique``: it has an argument for a single message, so that its head is not repeated. In ``prepared``
    its route may store values that it makes from the head.
    """

    method: str
    route: Route
    names: tuple[str, ...]
    arguments: dict[str, str]
    accept: str
    length: int
    kind: BodyKind
    limit: int
    keepsAlive: bool
    isLatest: bool
    expectsContinue: bool
    corsFields: tuple[str, ...] = ()
    isUnique: bool = False
    fields: RequestHead = field(kw_only=True, repr=False)
    prepared: Any = None


def readRequest(head: RequestHead, routes: Routes, most: int, corsFields: tuple[str, ...]) -> HttpRequest:
    """Return the request with this head.

    :param most: the maximum size of a message in bytes.
    :raises HttpError: 400, 404, 405, 411, 413, 415, 417 or 501: it cannot be answered, or the end of its body is
        uncertain.
    """
    length = _lengthOf(head)
    found, names = routes.find(head.path)
    route = found.get("GET" if head.method == "HEAD" else head.method)
    if route is None:
        allowed = ", ".join(allowedMethods(found))
        raise HttpError(405, f"this path takes {allowed} only", fields=(f"Allow: {allowed}",))
    kind = _kindOf(head)
    limit = min(most, JSON_BYTES) if kind in _DECODED else most
    if length > limit:
        more = "; larger values can be sent as application/msgpack" if limit < most else ""
        raise HttpError(413, f"a body of at most {limit} bytes is taken here{more}")
    arguments = _argumentsOf(head, route)
    connection = [each.lower() for each in head.listed("connection")]
    return HttpRequest(
        head.method, route, names, arguments, (head.only("accept") or "").lower(), length, kind, limit,
        keepsAlive="close" not in connection and (head.isLatest or "keep-alive" in connection),
        isLatest=head.isLatest, expectsContinue=_expectsContinue(head), corsFields=corsFields,
        isUnique="message_id" in arguments, fields=head,
    )  # fmt: skip


def allowedMethods(found: Any) -> list[str]:
    """Return the methods of the routes of one path, with those that every path has."""
    return [*(["GET", "HEAD"] if "GET" in found else []), *sorted(set(found) - {"GET"}), "OPTIONS"]


def _lengthOf(head: RequestHead) -> int:
    length, coding = head.only("content-length"), head.only("transfer-encoding")
    if coding is not None:
        if length is not None or not head.isLatest:
            raise HttpError(400, "a request has either Content-Length or, in HTTP/1.1, Transfer-Encoding")
        if coding.lower() != "chunked":
            raise HttpError(501, "chunked is the only transfer coding here")
        return CHUNKED
    if length is None:
        return 0
    if not length.isascii() or not length.isdecimal():
        raise HttpError(400, "Content-Length is no number")
    if len(length) > 18:
        raise HttpError(413, "the body is too large")
    return int(length)


def _expectsContinue(head: RequestHead) -> bool:
    expected = head.only("expect")
    if expected is not None and expected.lower() != "100-continue":
        raise HttpError(417, "100-continue is the only expectation here")
    return expected is not None and head.isLatest


def _kindOf(head: RequestHead) -> BodyKind:
    if (head.only("content-encoding") or "identity").lower() != "identity":
        raise HttpError(415, "bodies are not compressed here")
    name, *parameters = (head.only("content-type") or "").lower().split(";")
    name = name.strip()
    kind = _KINDS.get(name) or (BodyKind.TEXT if name.startswith("text/") else BodyKind.BYTES)
    charset = next((each.partition("=")[2].strip().strip('"') for each in parameters if "charset" in each), "utf-8")
    if kind in (BodyKind.TEXT, BodyKind.JSON, BodyKind.LINES) and charset not in ("utf-8", "utf8", "us-ascii"):
        raise HttpError(415, "text must be UTF-8")
    return kind


def _argumentsOf(head: RequestHead, route: Route) -> dict[str, str]:
    """Return the arguments of a request; an empty one counts as absent."""
    known = {each.name: each for each in route.parameters}
    found: dict[str, str] = {}
    for part in head.target.partition("?")[2].split("&"):
        name, _, value = part.partition("=")
        name = decoded(name)
        if not name or name in CREDENTIAL_PARAMETERS:
            continue
        if name not in known:
            raise HttpError(400, f"there is no parameter {name[:40]!r} here" + _listed(route.parameters))
        if name in found:
            raise HttpError(400, f"the parameter {name} occurs more than once")
        found[name] = decoded(value.replace("+", " "))
    for each in route.parameters:
        given = head.only(each.field.lower()) if each.field else None
        if given is not None and each.name in found:
            raise HttpError(400, f"{each.name} is a parameter and a header field")
        if given is not None:
            found[each.name] = _fieldText(given)
    return {name: value for name, value in found.items() if value}


def _listed(parameters: tuple[Parameter, ...]) -> str:
    return f"; it takes {', '.join(each.name for each in parameters)}" if parameters else ""


def _fieldText(value: str) -> str:
    """Return the value of a header field, whose bytes should be UTF-8."""
    try:
        return value.encode("latin-1").decode()
    except ValueError:
        return value
