"""What one input costs, for every kind of input of every dialect, before a client is let in and afterwards.

The tables hold the inputs; one test is made of each. ``todo`` names the row of the audit that is not mended yet.
"""

import atexit
import itertools
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from tests.attacks.attackers import UPGRADE
from tests.attacks.cost import ADMITTED, TRIES, Bounds, Cost, Crowd, Opened, WatchedBroker
from tests.attacks.costly import announcing, blip, collidingMap, deflated, emptyArrays, webSocket
from tests.conversations.clients import Stream, counted
from tests.conversations.test_slow_consumers import MEBIBYTE
from tests.nightly import nightly, repetitions
from tests.wire.flexi_frames import frame

_LOOPBACK = "tcp:0:interface=127.0.0.1"
_ANY = Bounds()
#: One message, however large or odd, and what hundreds say before they are let in.
_ONE, _LARGE = Bounds(event=0.05), Bounds(event=0.15, grown=128 * MEBIBYTE)
_PURSE = Bounds(grown=50 * MEBIBYTE, least=1.0)
#: Messages that inflate: much less than they inflate to.
_INFLATED = Bounds(event=0.1, byMebibyte=4.0)
#: Thousands of queues or subscriptions: 3 KB and 40 us each in a broker with a journal, however short the line that
#: makes one. ``--max-queues``, ``--max-topics`` and ``--max-subscriptions`` bound their number.
_QUEUES = Bounds(grown=72 * MEBIBYTE, least=2.0)  # 10,000 queues of 6 KiB
_WS, _IDENTITY = UPGRADE % b"/ws", UPGRADE % b"/"
_NUMBERS = itertools.count()


class Input(NamedTuple):
    """What ``connections`` say, each the same.

    ``data`` is given the client's id. ``others`` are connections that are admitted and say their own before.
    """

    name: str
    dialect: str
    data: Callable[[int], bytes]
    connections: int = 1
    bounds: Bounds = _ANY
    todo: str = ""
    others: tuple[tuple[str, Callable[[int], bytes]], ...] = ()
    nightly: bool = False


def _flexi(kind: str, *, times: int = 1, payload: bytes = b"", **fields: object) -> Callable[[int], bytes]:
    return lambda id: frame(kind, id, fields or None, payload) * times


def _said(*data: bytes, times: int = 1) -> Callable[[int], bytes]:
    return lambda id: b"".join(data) * times


def _binary(say: Callable[[int], bytes]) -> Callable[[int], bytes]:
    return lambda id: webSocket(say(id))


def _each(times: int, one: Callable[[int, int], bytes]) -> Callable[[int], bytes]:
    """Return many, numbered: the numbers are never used again."""
    return lambda id: b"".join(one(id, next(_NUMBERS)) for _ in range(times))


def _line(text: str, times: int) -> Callable[[int], bytes]:
    return _each(times, lambda id, number: f"{text}\n".replace("%", str(number)).encode())


def _http(*lines: str, body: bytes = b"") -> Callable[[int], bytes]:
    return _said("\r\n".join((*lines, "", "")).encode(), body)


def _post(path: str, body: bytes = b"1", kind: str = "application/json", *fields: str) -> bytes:
    head = f"POST {path} HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", *fields
    length = () if fields and fields[0].startswith("Transfer") else (f"Content-Length: {len(body)}",)
    return "\r\n".join((*head, *length, "", "")).encode() + body


_HELLO, _AUTH, _PUBLISH, _SUBSCRIBE, _ACK, _NACK, _PING, _PONG, _POLL = range(1, 10)
_GET = "GET / HTTP/1.1"
_BEGUN = 127 << 10
_ROUTES = [{"client_id": 2000 + each, "path": "x"} for each in range(1000)]

#: What strangers say to a broker that wants credentials.
STRANGERS = (
    Input("garbage", "fleximq", _said(b"\xde\xad\xbe\xef" * 10), 200, _ANY),
    Input("tlsHello", "fleximq", _said(b"\x16\x03\x01\x02\0\1" + bytes(500)), 200, _ANY),
    Input("collidingJoin", "fleximq", lambda id: frame("JOIN", 0, collidingMap()), 1, Bounds(event=0.012)),
    Input("nestedJoin", "fleximq", lambda id: frame("JOIN", 0, b"\x91" * 65000), 5, _ONE),
    Input("nestedArrayJoin", "fleximq", lambda id: frame("JOIN", 0, b"\x96" + b"\x91" * 65000), 5, _ONE),
    Input("mapJoin", "fleximq", lambda id: frame("JOIN", 0, {f"{each:x}": each for each in range(8000)}), 5, _ONE),
    Input("routesJoin", "fleximq", lambda id: frame("JOIN", 0, {"routing": _ROUTES}), 5, _ONE),
    Input("wrongJoin", "fleximq", _flexi("JOIN", auth={"type": "token", "token": "x" * 60000}), 20),
    Input("beforeJoin", "fleximq", lambda id: frame("PUB", 0, {"topic": "x"}, b"\xc0") * 500, 20),
    Input("begunJoins", "fleximq", lambda id: announcing("JOIN", 0, 1 << 23, bytes(_BEGUN)), 600, _PURSE),
    Input("emptyMessages", "fleximq-ws", _said(_WS, webSocket(b"") * 10_000), 2),
    Input("pings", "fleximq-ws", _said(_WS, webSocket(b"", 0x89) * 10_000), 2, Bounds(event=0.03)),
    Input("fragments", "fleximq-ws", _said(_WS, webSocket(b"", 2), webSocket(b"", 0) * 10_000), 2, Bounds(event=0.03)),
    Input("hellos", "blipmq", _said(blip(_HELLO, b"\0\1") * 5000), 2),
    Input("beforeAuth", "blipmq", _said(blip(_PING) * 5000), 2),
    Input("wrongKeys", "blipmq", _said(blip(_HELLO, b"\0\1"), blip(_AUTH, counted("k" * 60000)) * 10), 2),
    Input("begunFrames", "blipmq", _said(b"\0\xff\0\0\2", bytes(_BEGUN)), 600, _PURSE),
    Input("manyLines", "minimq", _line("PRODUCE:i%:::t:::x", 2000), 2),
    Input("begunLines", "minimq", _said(b"PRODUCE:", b"x" * _BEGUN), 600, _PURSE),
    Input("equalFields", "http", _http(_GET, *["a:"] * 4000), 1, Bounds(event=0.01)),
    Input("manyFields", "http", _http(_GET, *(f"{each:x}:" for each in range(2300))), 1, _ONE),
    Input("longQuery", "http", _http("GET /?" + "a&" * 8000 + " HTTP/1.1"), 1, _ONE),
    Input("longBasic", "http", _http(_GET, "Authorization: Basic " + "YTpi" * 4000), 5),
    Input("noEnd", "http", _said(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000), 20),
    Input("malformed", "http", _said(b"GET /\r\n\r\n"), 200, _ANY),
    Input("foreign", "http", _said(_IDENTITY[:-2], b"Origin: https://a.example\r\n\r\n"), 200, _ANY),
    Input("manyCookies", "http", _http("GET /api/about HTTP/1.1", "Host: localhost", "Cookie: " + "a=;" * 5000), 20),
    Input("signIns", "http", _http("POST /console/session HTTP/1.1", "Host: localhost", "Content-Length: 65000",
                                   "Content-Type: application/json", body=b"[" * 65_000), 5, _ONE),
    Input("bodies", "http", _http("POST /api/queues/purge HTTP/1.1", "Host: localhost", "Content-Length: 65000",
                                  body=bytes(64000)), 600, _PURSE),
)  # fmt: skip

#: What strangers say to a broker that lets all of its own machine in.
NEIGHBOURS = (
    Input("inflatedJoins", "fleximq-ws", lambda id: _WS + deflated(announcing("JOIN", 0, 15 << 20, bytes(14 << 20))),
          15, Bounds(least=2.0, event=0.2, grown=31 * MEBIBYTE)),
    Input("largeJoins", "fleximq", lambda id: announcing("JOIN", 0, 1 << 23, bytes(6 << 20)), 12, _PURSE),
    Input("largeHellos", "blipmq", _said(b"\0\xff\0\0\1", bytes(6 << 20)), 12, _PURSE),
    Input("largeLines", "minimq", _said(b"PRODUCE:", b"x" * (6 << 20)), 12, _PURSE),
)  # fmt: skip

_TOPIC = {"topic": "cost"}
_IDENTITY_READER = ("identity", _said(webSocket(b"SUBSCRIBE:cost", 0x81)))
_MANY = repetitions(20_000, 150_000)
_TOPICS = (("fleximq", _each(_MANY, lambda id, number: frame("PUB", id, {"topic": f"d.{number}"}))),)
_BLIP_READERS = ("blipmq", _said(blip(_SUBSCRIBE, counted("copied") + b"\0") * 1000))


def _waiting(payload: bytes) -> tuple[tuple[str, Callable[[int], bytes]], ...]:
    """Return who puts a message into the queue of MiniMQ that is there then."""
    return ("minimq", _said(b"CONSUME:queued\n")), ("fleximq", _flexi("PUB", payload=payload, topic="queued"))


def _asking(path: str, arguments: bytes) -> Callable[[int], bytes]:
    header = {"routing": [{"client_id": 1, "path": path}], "reqrep": {"type": "request", "id": "q"}}
    return lambda id: frame("REQ", id, header, arguments)


def _valuing(path: str, *, times: int = 1, **arguments: object) -> Callable[[int], bytes]:
    return lambda id: _asking(f"/value/{path}", msgpack.packb(arguments))(id) * times


#: What clients say that were let in.
CLIENTS = (
    Input("collidingPub", "fleximq", lambda id: frame("PUB", id, collidingMap(topic="c")), 1,
          Bounds(event=0.01)),
    Input("collidingArguments", "fleximq", _asking("/broker/topics", collidingMap()), 1, Bounds(event=0.01)),
    Input("collidingStage", "fleximq", lambda id: _asking("/sink/stage", b"\x84" + msgpack.packb(
        {"query": "q", "batch": 1, "part": "p"})[1:] + msgpack.packb("records") + b"\xdc\0\x20" + collidingMap() * 32
        )(id), 1, Bounds()),
    Input("stagedRecords", "fleximq", _asking("/sink/stage", msgpack.packb({
          "query": "q", "batch": 1, "part": "p", "records": [{"topic": f"{each}", "value": 0} for each in range(50_000)]
          })), 1, _LARGE),
    Input("arraysInPut", "fleximq", _asking("/value/put", b"\x82\xa5value\xc4\0\xa3key" + emptyArrays(4 << 20)), 1,
          _ONE),
    Input("addToArrays", "fleximq", lambda id: _valuing("put", key="n", value=emptyArrays(4 << 20))(id)
          + _valuing("add", key="n")(id), 1, _LARGE),
    # 10,000 requests wait for one key, and one client for 10,000 keys. The value is gone before the next try.
    Input("valueReaders", "fleximq", _valuing("put", key="read", value=b"", expires_in=300), 1, Bounds(event=0.25), "",
          (("fleximq", _valuing("get", times=1000, keys=["read"], wait=60_000)),) * 10),
    Input("waitingReaders", "fleximq", lambda id: b"".join(
        _valuing("get", keys=[f"w{first + each}" for each in range(1000)], wait=60_000)(id)
        for first in range(0, 10_000, 1000)), 1, Bounds(grown=8 * MEBIBYTE)),
    Input("values", "fleximq", _each(1000, lambda id, number: _valuing(
        "put", key=f"v{number}", value=b"", expires_in=1 << 40)(id)), 20,
          Bounds(grown=24 * MEBIBYTE, byMebibyte=4.0)),
    # Each waits for the one before it; what does not fit is refused.
    Input("putsOfOneKey", "fleximq", _valuing("put", times=1000, key="puts", value=bytes(60_000)), 4, _LARGE),
    Input("getsOfLargeValues", "fleximq", _valuing("get", times=1000, keys=["large"]), 1, _LARGE, "",
          (("fleximq", _valuing("put", key="large", value=bytes(8 << 20))),)),
    Input("largeValueReaders", "fleximq", _valuing("put", key="late", value=bytes(8 << 20), expires_in=300), 1, _LARGE,
          "", (("fleximq", _valuing("get", times=1000, keys=["late"], wait=60_000)),)),
    # 15 MiB are not copied for each of those who receive them.
    Input("largeToWebSockets", "fleximq", _flexi("PUB", payload=bytes(15 << 20), topic="cost"), 1,
          _LARGE._replace(grown=64 * MEBIBYTE), "", (("fleximq-ws", _binary(_flexi("SUB", topic="cost"))),) * 20),
    Input("replays", "fleximq", lambda id: b"".join(
        frame("SUB", id, {"topic": f"d.x{each}", "from": "first"}) for each in range(1500)), 1,
          Bounds(event=0.3, least=1.0)),
    Input("routesOfReplays", "fleximq", _each(500, lambda id, number: frame("PUB", id, {"topic": f"d.{number}"})), 1,
          _ANY, "", (("fleximq", lambda id: b"".join(
              frame("SUB", id, {"topic": f"d.{each}.#", "from": "first"}) for each in range(3000))),)),
    # A pattern with a start looks at up to 1,000 durable topics at once, and at the others in slices.
    Input("manyReplays", "fleximq", lambda id: b"".join(
        frame("SUB", id, {"topic": f"*.x{each}", "from": "last"}) for each in range(5000)), 1,
          Bounds(event=0.2, least=5.0)),
    # The same one again and again costs one search, and leaves nothing behind; all of one read are there at once.
    Input("repeatedReplays", "fleximq", lambda id: frame("SUB", id, {"topic": "#", "from": "first"}) * 5000, 1,
          Bounds(grown=48 * MEBIBYTE, least=1.0), "", _TOPICS),
    Input("arraysToIdentity", "fleximq", _flexi("PUB", payload=emptyArrays(4 << 20), topic="cost"), 1, _ONE, "",
          (_IDENTITY_READER,)),
    Input("arraysToMini", "minimq", _said(b"CONSUME:queued\n"), 1, Bounds(event=0.05, least=10.0), "",
          _waiting(emptyArrays(4 << 20))),
    Input("smallArraysToIdentity", "fleximq", _flexi("PUB", payload=emptyArrays(1000), times=2000, topic="cost"), 1,
          Bounds(event=0.1, byMebibyte=4.0), "", (_IDENTITY_READER,)),
    Input("nestedToIdentity", "fleximq", _flexi("PUB", payload=b"\x91" * 60_000, times=50, topic="cost"), 1,
          Bounds(event=0.4, byMebibyte=4.0), "", (_IDENTITY_READER,)),
    Input("bytesToIdentity", "fleximq", _flexi("PUB", payload=msgpack.packb(b"\xff" * (8 << 20)), topic="cost"), 1,
          _LARGE, "", (_IDENTITY_READER,)),
    Input("controlsToMini", "minimq", _said(b"CONSUME:queued\n"), 1, Bounds(event=0.15, least=1.0), "",
          _waiting(msgpack.packb("\n\1" * (1 << 20)))),
    Input("unknownTargets", "fleximq", _flexi("NOTIF", routing=_ROUTES, times=20)),
    Input("ownRoutes", "fleximq", lambda id: frame("NOTIF", id, {"routing": [{"client_id": id, "path": "x"}] * 1000},
                                                   bytes(1000)) * 20),
    Input("broadcasts", "fleximq", _flexi("BCAST", payload=bytes(100), times=5000), 1, _ANY, "",
          (("fleximq", _said()),) * 50),
    Input("openRequests", "fleximq", _each(12_000, lambda id, number: frame("REQ", id, {
        "routing": [{"client_id": id, "path": "x"}], "reqrep": {"type": "request", "id": f"{number}"}}))),
    Input("inFlight", "minimq", _said(b"PRODUCE:i:::f:::x\n" * 10_000, b"CONSUME:f\n" * 10_000)),
    Input("manyTopics", "fleximq", _each(10_000, lambda id, number: frame("PUB", id, {"topic": f"t{number}"}))),
    Input("manySubs", "fleximq", _each(9000, lambda id, number: frame("SUB", id, {"topic": f"s{number}"}))),
    Input("manyPatterns", "fleximq", _each(9000, lambda id, number: frame("SUB", id, {"topic": f"*.s{number}"})), 1,
          Bounds(event=0.2)),
    Input("doublingPatterns", "fleximq", lambda id: b"".join(
        [frame("PUB", id, {"topic": ".".join("a" * 8)}) + frame("SUB", id, {"topic": "b.*"})
         + frame("UNSUB", id, {"topic": "b.*"})] * 50), 1, _ANY, "",
          (("fleximq", lambda id: b"".join(frame("SUB", id, {"topic": ".".join(each)})
                                           for each in itertools.product("a*", "a*", "a*", "a*", "a*", "a*", "a*",
                                                                         "abcdefghijklmnopqrstuvwxyz*"))),)),
    Input("newTopics", "fleximq", _each(100, lambda id, number: frame("PUB", id, {"topic": "a." * 7 + f"x{number}"})),
          1, _ANY, "", (("fleximq", lambda id: b"".join(
              frame("SUB", id, {"topic": ".".join((*each, f"y{last}"))})
              for last in range(64) for each in itertools.product("a*", repeat=7))),)),
    Input("patternTurns", "fleximq", _each(5000, lambda id, number: frame("SUB", id, {"topic": "x.#"})
          + frame("UNSUB", id, {"topic": "x.#"}) + frame("PUB", id, {"topic": f"x.{number % 50}"}))),
    Input("pingsOfFlexi", "fleximq", _flexi("PING", keepalive={"timestamp": 1}, times=10_000)),
    Input("unknownTypes", "fleximq", lambda id: frame(77, id) * 10_000),
    Input("inflatedPubs", "fleximq-ws", lambda id: deflated(frame("PUB", id, _TOPIC, bytes(4 << 20))) * 15, 1,
          _INFLATED._replace(grown=48 * MEBIBYTE)),
    Input("inflatedTexts", "identity", _said(deflated(bytes(1 << 20), 0xC1) * 60), 1, _INFLATED),
    Input("ownTopics", "blipmq", _each(10_000, lambda id, number: blip(_PUBLISH, b"\0" + counted(f"b{number}")))),
    Input("subscriptions", "blipmq", _each(5000, lambda id, number: blip(_SUBSCRIBE, counted(f"b{number}") + b"\1")), 1,
          _QUEUES),
    # A million copies, each in a subscription of its own and 0.4 us: their number is bounded, and a turn makes 60,000.
    Input("copies", "blipmq", _said(blip(_PUBLISH, b"\0" + counted("copied") + b"x") * 200), 1, Bounds(least=1.0), "",
          (_BLIP_READERS,) * 5),
    Input("unknownPolls", "blipmq", _each(10_000, lambda id, number: blip(_POLL, (number + 1).to_bytes(8, "big")))),
    Input("unknownAcks", "blipmq", _each(10_000, lambda id, number: blip(_ACK, (number + 1).to_bytes(8, "big")))),
    Input("largeFrames", "blipmq", _said(blip(_PUBLISH, b"\0" + counted("cost") + b"\xff" * (12 << 20))), 1, _LARGE, "",
          (_IDENTITY_READER,)),
    Input("alternatingFrames", "blipmq", _said(*(blip(_PUBLISH, b"\0" + counted(each)) for each in "ab"), times=5000)),
    Input("badFrames", "blipmq", _said(blip(_SUBSCRIBE, b"x") * 10_000)),
    Input("queues", "minimq", _line("PRODUCE:i:::q%:::x", 5000), 1, _QUEUES),
    Input("consumes", "minimq", _line("CONSUME:c%", 10_000), 1, _QUEUES),
    Input("replies", "minimq", _line("PRODUCE:i%:::one:::x:::-:::r%", 5000), 1, Bounds(event=0.2)),
    Input("acks", "minimq", _line("ACK:unknown%", 10_000)),
    Input("alternatingLines", "minimq", _said(b"PRODUCE:i:::a:::x\nPRODUCE:i:::b:::x\n" * 5000), 1,
          Bounds(event=0.15, least=1.0)),
    Input("producesAndConsumes", "minimq", _said(b"PRODUCE:i:::a:::x\nCONSUME:a\n" * 3000), 1, Bounds(least=2.0)),
    Input("equalIds", "minimq", _said(b"PRODUCE:i:::a:::x\n" * 10_000, b"CONSUME:a\n" * 10_000, b"ACK:i\n" * 10_000)),
    Input("emptyLines", "minimq", _said(b"\n" * 60_000), 1, _ANY),
    Input("colons", "minimq", _said(b"PRODUCE:i:::a", b":" * (8 << 20), b"\n"), 1, _LARGE),
    Input("longLine", "minimq", _said(b"PRODUCE:i:::cost:::", b"x" * (15 << 20), b"\n"), 1, _LARGE._replace(event=0.3),
          "", (_IDENTITY_READER,)),
    Input("wildcards", "fleximq", lambda id: b"".join(frame("SUB", id, {"topic": f"d.*.{each}"}) for each in range(20)),
          1, _LARGE._replace(event=0.1), "", _TOPICS),
    Input("pagesOfTopics", "fleximq", lambda id: _asking("/broker/topics", msgpack.packb({"limit": 1}))(id) * 20, 1,
          _LARGE._replace(event=0.1), "", _TOPICS),
    Input("manyParameters", "http", _http("GET /api/about?" + "&" * 15_000 + " HTTP/1.1", "Host: localhost"), 1, _ONE),
    Input("numbersInBody", "http", _http("POST /api/queues/purge HTTP/1.1", "Host: localhost", "Content-Length: 60000",
                                         "Content-Type: application/json", body=b"[" + b"1e9," * 14_999 + b"0]]"),
          1, _ONE),
    Input("posts", "http", _said(_post("/topics/cost") * 100_000), 1, Bounds(event=0.15)),
    Input("postsToManyTopics", "http", _each(5000, lambda id, number: _post(f"/topics/h{number}"))),
    Input("postsToManyQueues", "http", _each(3000, lambda id, number: _post(f"/queues/hq{number}")), 1, _QUEUES),
    Input("differentHeads", "http", _each(5000, lambda id, number: _post("/topics/cost", b"1", "a/b", f"X: {number}"))),
    Input("longHeads", "http", _each(100, lambda id, number: _post("/topics/cost", b"1", "a/b", *[f"a{number}: b"] * 95,
                                                                  "C: " + "d" * 12_000)), 1, _ONE),
    Input("longNames", "http", _each(500, lambda id, number: _post("/topics/" + "%c3%a9" * 400 + f"{number}"))),
    Input("malformedJson", "http", _said(_post("/topics/cost", b"{") * 5000)),
    Input("nestedJson", "http", _said(_post("/topics/cost", b"[" * 1_000_000)), 1, _ONE),
    Input("arraysInJson", "http", _said(_post("/topics/cost", b"[" + b"[]," * 349_000 + b"0]")), 1, _LARGE),
    Input("keysInJson", "http", _said(_post("/topics/cost", b"{" + b",".join(b'"%d":1' % each for each in range(95_000))
                                           + b"}")), 1, _LARGE),
    Input("numbersInJson", "http", _said(_post("/topics/cost", b"[" + b"1e9," * 262_000 + b"0]")), 1, _LARGE),
    Input("longNumber", "http", _said(_post("/topics/cost", b"1" * 1_000_000)), 1, _ONE),
    Input("lines", "http", _said(_post("/topics/cost", b"1\n" * 9_999, "application/x-ndjson") * 20), 1, _ANY, "",
          (_IDENTITY_READER,)),
    Input("emptyLinesOfJson", "http", _said(_post("/topics/cost", b"\n" * (1 << 20), "application/x-ndjson"))),
    Input("smallChunks", "http", _said(_post("/topics/cost", b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n", "text/plain",
                                            "Transfer-Encoding: chunked"))),
    Input("largeBody", "http", _said(_post("/topics/cost", b"\xff" * (12 << 20), "a/b")), 1, _LARGE, "",
          (_IDENTITY_READER,)),
    Input("begunBodies", "http", _said(_post("/topics/cost", b"x" * (8 << 20), "a/b")[:_BEGUN]), 200,
          Bounds(grown=50 * MEBIBYTE)),
    Input("requests", "http", _each(3000, lambda id, number: _post("/request/999/x"))),
    Input("preflights", "http", _said(b"OPTIONS /topics/a HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5000)),
    Input("pagesBetween", "http", _said(_post("/topics/cost"), b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", times=100)),
    Input("channels", "identity", _each(5000, lambda id, number: webSocket(b"SUBSCRIBE:c%d" % number, 0x81))),
    Input("texts", "identity", _said(webSocket(b"SUBSCRIBE:cost", 0x81), webSocket(b"PUBLISH:cost:x", 0x81) * 5000), 1,
          Bounds(event=0.15)),
    Input("unknownWords", "identity", _said(webSocket(b"x", 0x81) * 20_000)),
)  # fmt: skip


#: What readers of the past say, after 30 messages that take 10 ms each to convert, and 200,000 without payload.
PAST = (
    Input("history", "identity", _said(webSocket(b"SUBSCRIBE:h", 0x81)), 40, Bounds(least=2.5), "",
          (("fleximq", _flexi("PUB", payload=emptyArrays(65_000), times=30, topic="h")),)),
    Input("emptyRecords", "fleximq", lambda id: frame("SUB", id, {"topic": "e", "from": "first"}), 1,
          Bounds(event=0.1, least=0.5), "", (("fleximq", _flexi("PUB", times=200_000, topic="e")),)),
)  # fmt: skip


class CostCase(SynchronousTestCase):
    """A broker that is started with the first test; the test of an input that may grow it has a broker of its own."""

    options: ClassVar[tuple[str, ...]] = ("--listen", _LOOPBACK)
    admitted = True
    _shared: ClassVar[WatchedBroker | None] = None

    def fresh(self) -> WatchedBroker:
        """Start a broker, and end it with the test."""
        started = self.start()
        self.addCleanup(started.stop)
        return started

    def shared(self) -> WatchedBroker:
        """Return the broker of this class, which ends with the interpreter."""
        kind = type(self)
        if kind._shared is None:
            kind._shared = self.start()
            atexit.register(kind._shared.stop)
        return kind._shared

    def start(self) -> WatchedBroker:
        """Start a broker."""
        return WatchedBroker(*self.options, *self.more()).__enter__()  # type: ignore[return-value]

    def more(self) -> Sequence[str]:
        """Return options that are known only now."""
        return ()

    def cost(self, each: Input) -> Cost:
        """Return the cost of an input, of some tries the least; its own broker, if memory is what it shows."""
        broker = self.fresh() if each.bounds.grown != _ANY.grown else self.shared()
        cost = self._try(broker, each)
        for _ in range(0 if each.todo else TRIES - 1):
            if cost.over(each.bounds):
                cost = cost.least(self._try(broker, each))
        print(f"\n{each.dialect} {each.name}: {cost}")
        return cost

    def _try(self, broker: WatchedBroker, each: Input) -> Cost:
        others = [ADMITTED[dialect](broker.address) for dialect, _ in each.others]
        before = Crowd(broker, others)
        try:
            for place, (_, say) in enumerate(each.others):
                before.say([say(other.id) if number == place else b"" for number, other in enumerate(others)])
                before.rest()
            crowd = Crowd(broker, [self.opened(broker, each.dialect) for _ in range(each.connections)])
            return crowd.cost(each.data)
        finally:
            before.close()

    def opened(self, broker: WatchedBroker, dialect: str) -> Opened:
        """Return a connection of an attacker."""
        return ADMITTED[dialect](broker.address) if self.admitted else Opened(Stream(broker.address).socket)


def testsOf(*inputs: Input) -> Callable[[type[CostCase]], type[CostCase]]:
    """Decorate a case with a test for each input."""

    def testOf(each: Input) -> Any:
        def test(self: CostCase) -> None:
            self.assertEqual(self.cost(each).over(each.bounds), [])

        test.__doc__ = f"{each.dialect}: {each.name}."
        if each.todo:
            test.todo = each.todo  # type: ignore[attr-defined]
        return nightly(test) if each.nightly else test

    def decorate(case: type[CostCase]) -> type[CostCase]:
        for each in inputs:
            setattr(case, f"test_{each.name}", testOf(each))
        return case

    return decorate


@testsOf(*STRANGERS)
class StrangerTests(CostCase):
    """Before a client is let in, by a broker with ``--auth``."""

    admitted = False

    def more(self) -> Sequence[str]:
        """Make a file of tokens."""
        tokens = Path(tempfile.mkstemp(prefix="attack-")[1])
        atexit.register(tokens.unlink)
        return "--auth", f"tokens:{tokens}"


@testsOf(*NEIGHBOURS)
class NeighbourTests(CostCase):
    """Before a client is let in, by an open broker."""

    admitted = False


@testsOf(*CLIENTS)
class ClientTests(CostCase):
    """After it, by an open one with a journal."""

    def more(self) -> Sequence[str]:
        """Keep a journal, which some paths need."""
        return "--journal", "journal", "--fsync", "never", "--durable", "d.#"


@testsOf(*PAST)
class PastTests(CostCase):
    """By an open broker that keeps every topic, and a history."""

    options = ("--listen", _LOOPBACK, "--journal", "journal", "--fsync", "never", "--durable", "#", "--history", "30")
