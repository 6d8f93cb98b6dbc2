"""What clients can do, which permission each deed needs, and what is heard with and without it.

One line for each deed of each dialect; the tests are made of them in tests/conversations/test_permission_matrix.py.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

#: What somebody is granted who may do all that is in the table. Topics begin with ``m.``, paths with ``svc/``.
GRANTS: Mapping[str, Any] = {
    "publish": ["m.#"],
    "subscribe": ["m.#"],
    "consume": ["m.#"],
    "request": ["svc/#"],
    "notify": ["svc/#"],
    "broadcast": True,
    "read": ["broker/#", "api/#", "metrics"],
    "admin": ["broker/reload", "api/queues/purge"],
}


class Deed(NamedTuple):
    """Something that a client does.

    ``permission`` is the one that it needs. ``does`` returns what the caller hears; ``may`` and ``mayNot`` are what
    that is, with and without the permission. ``first`` is done before; ``onlyLost`` says that it needs the same
    permission, so the deed is only there for those who lose it. ``lost`` is what is heard when the permission is taken
    away after the deed.
    """

    permission: str
    does: Callable[[Any], Sequence[str]]
    may: Sequence[str]
    mayNot: Sequence[str]
    first: Callable[[Any], object] | None = None
    onlyLost: bool = False
    lost: Sequence[str] = ()


def _routed(caller: Any, kind: str, **fields: Any) -> Sequence[str]:
    routing = {"routing": [{"client_id": caller.id, "path": "/svc/x"}]}
    heard: Sequence[str] = caller.send(kind, routing | fields, "value")
    return heard


def _said(caller: Any, text: str) -> Sequence[str]:
    """Say a text to an Identity channel; of what is heard there, only that it is heard matters."""
    return ["MSG" if each.startswith("MSG:") else each for each in caller.text(text)]


_CORRELATION = {"type": "correlation", "id": "nobody asked"}
_REFUSED = ["REP 403"]
_NACK = ["NACK 401 not permitted"]
_ERROR = ["ERROR:403:not permitted"]
_NAMED = ["ERROR:403:not permitted: m.a"]
_LOST = ["ERROR:403:not permitted any more: m.a"]

FLEXIMQ: Mapping[str, Deed] = {
    "publish": Deed("publish", lambda c: c.send("PUB", {"topic": "m.a"}, 1), [], _REFUSED),
    "publishAgain": Deed(
        "publish", lambda c: c.send("PUB", {"topic": "m.a"}, 1), [], _REFUSED,
        first=lambda c: [c.send("PUB", {"topic": "m.a"}, 1) for _ in range(3)], onlyLost=True,
    ),
    "publishTo": Deed(
        "publish", lambda c: c.send("PUB", {"topic": "m.a", "routing": [{"client_id": 5000}]}, 1), [], _REFUSED
    ),
    "subscribe": Deed(
        "subscribe", lambda c: c.send("SUB", {"topic": "m.a"}), [], ["REP 603"], lost=["REP 603"]
    ),
    "subscribeToPattern": Deed(
        "subscribe", lambda c: c.send("SUB", {"topic": "m.#"}), [], ["REP 603"], lost=["REP 603"]
    ),
    "subscribeToAll": Deed("subscribe", lambda c: c.send("SUB", {"topic": "#"}), [], ["REP 603"], lost=["REP 603"]),
    "request": Deed("request", lambda c: c.request("/svc/x", target=c.id), ["REQ"], _REFUSED),
    "notify": Deed("notify", lambda c: _routed(c, "NOTIF"), ["NOTIF"], _REFUSED),
    "replyUnasked": Deed("notify", lambda c: _routed(c, "REP", reqrep=_CORRELATION), ["REP"], _REFUSED),
    "broadcast": Deed("broadcast", lambda c: c.send("BCAST", {}, 1), [], _REFUSED),
    "read": Deed("read", lambda c: c.request("/broker/about"), ["REP 200"], _REFUSED),
    "administrate": Deed("admin", lambda c: c.request("/broker/reload"), ["REP 200"], _REFUSED),
}  # fmt: skip

BLIPMQ: Mapping[str, Deed] = {
    "publish0": Deed("publish", lambda c: c.publish("m.a", qos=0), [], _NACK),
    "publish1": Deed("publish", lambda c: c.publish("m.a"), [], _NACK),
    "publishAgain": Deed(
        "publish", lambda c: c.publish("m.a"), [], _NACK, first=lambda c: c.publish("m.a"), onlyLost=True
    ),
    "subscribe": Deed("subscribe", lambda c: c.subscribe("m.a"), ["ACK"], _NACK),
    "poll": Deed(
        "subscribe", lambda c: c.poll(), ["PUBLISH"], _NACK,
        first=lambda c: [c.subscribe("m.a"), c.publish("m.a"), c.publish("m.a"), c.publish("m.a")], onlyLost=True,
    ),
    "acknowledge": Deed(
        "subscribe", lambda c: c.ack(), [], _NACK,
        first=lambda c: [c.subscribe("m.a"), c.publish("m.a"), c.poll()], onlyLost=True,
    ),
}  # fmt: skip

MINIMQ: Mapping[str, Deed] = {
    "produce": Deed("publish", lambda c: c.line("PRODUCE:i:::m.a:::x::::::"), ["i"], _ERROR),
    "produceOldStyle": Deed("publish", lambda c: [*c.line("PRODUCE:m.a:x", "PING:")][1:], ["PONG:"], ["PONG:"]),
    "consume": Deed("consume", lambda c: c.line("CONSUME:m.a"), ["NO_MSG"], _ERROR),
    "acknowledge": Deed("consume", lambda c: c.line("ACK:i"), [], [], first=lambda c: c.line("CONSUME:m.a")),
}

IDENTITY: Mapping[str, Deed] = {
    "subscribe": Deed("subscribe", lambda c: c.text("SUBSCRIBE:m.a"), ["SUB-ACK:m.a"], _NAMED, lost=_LOST),
    "publish": Deed(
        "publish", lambda c: _said(c, "PUBLISH:m.a:x"), ["MSG"], _NAMED, first=lambda c: c.text("SUBSCRIBE:m.a")
    ),
    "publishAgain": Deed(
        "publish", lambda c: _said(c, "PUBLISH:m.a:x"), ["MSG"], _NAMED,
        first=lambda c: c.text("SUBSCRIBE:m.a", "PUBLISH:m.a:x"), onlyLost=True,
    ),
    "publishUnheard": Deed(
        "subscribe", lambda c: _said(c, "PUBLISH:m.a:x"), ["MSG"], ["ERROR:401:Not subscribed"],
        first=lambda c: c.text("SUBSCRIBE:m.a"), onlyLost=True, lost=_LOST,
    ),
}  # fmt: skip

HTTP: Mapping[str, Deed] = {
    "read": Deed("read", lambda c: c.get("/api/clients"), ["HTTP 200"], ["HTTP 403"]),
    "metrics": Deed("read", lambda c: c.get("/metrics"), ["HTTP 200"], ["HTTP 403"]),
    "administrate": Deed(
        "admin", lambda c: c.post("/api/queues/purge", '{"topic": "m.none"}'), ["HTTP 404"], ["HTTP 403"]
    ),
}

_OK, _FORBIDDEN = ["HTTP 200"], ["HTTP 403"]
PLAIN_HTTP: Mapping[str, Deed] = {
    "publish": Deed("publish", lambda c: c.post("/topics/m.a", "1"), _OK, _FORBIDDEN),
    "publishAgain": Deed(
        "publish", lambda c: c.post("/topics/m.a", "1"), _OK, _FORBIDDEN,
        first=lambda c: [c.post("/topics/m.a", "1") for _ in range(3)], onlyLost=True,
    ),
    "publishLater": Deed("publish", lambda c: c.post("/topics/m.a?delay=60", "1"), _OK, _FORBIDDEN),
    "enqueue": Deed("publish", lambda c: c.post("/queues/m.q", "1"), _OK, _FORBIDDEN),
    "request": Deed("request", lambda c: c.post("/request/999/svc/x", "1"), ["HTTP 404"], _FORBIDDEN),
}  # fmt: skip

#: The deeds at each door.
DEEDS: Mapping[str, Mapping[str, Deed]] = {
    "fleximq": FLEXIMQ,
    "fleximqWs": FLEXIMQ,
    "fleximqUpgrade": FLEXIMQ,
    "blipmq": BLIPMQ,
    "minimq": MINIMQ,
    "identity": IDENTITY,
    "identityHeader": IDENTITY,
    "http": HTTP,
    "plainHttp": PLAIN_HTTP,
}
