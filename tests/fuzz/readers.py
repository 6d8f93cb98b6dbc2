"""Every reader of foreign bytes, fed with single inputs: scanners, headers, payloads and requests.

The first byte of an input chooses the reader, 255 the slowest one, and the others are its data. A reader may refuse
them with an error of the broker; any other exception, and more than :data:`SLOW` seconds of processor time, is
:class:`Broken`. ``corpus`` holds the inputs from which atheris begins, and those that once broke a reader.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fleximq.broker.topics.names import checkPattern
from fleximq.compiled import choice
from fleximq.dialects.http.format.request_head import HttpError, RequestHead, credentialsIn, webSocketDialect
from fleximq.dialects.http.format.request_head import withoutCredentials as withoutCredentialsIn
from fleximq.dialects.http.routing.origins import Origins
from fleximq.errors import BrokerError
from fleximq.values.message import Content, Message
from fleximq.wire import blipmq_payload
from fleximq.wire.fleximq_array_header import openMapOrArrays
from fleximq.wire.fleximq_header import MessageType, checkHeader
from fleximq.wire.fleximq_scanner import FIXED_BYTES
from fleximq.wire.identity_text import parseText
from fleximq.wire.messagepack_json import toJson
from fleximq.wire.minimq_line import LineScanner, decodeText, parseCommand
from fleximq.wire.minimq_message import parseProduce, renderDelivery
from fleximq.wire.payload_conversion import toBytes, toMessagePack, toUtf8
from fleximq.wire.websocket_frame import TEXT, endOfFrame
from tests.fuzz.hostile import Batch
from tests.fuzz.tongues import HTTP, MOST
from tests.fuzz.world import Broken, World
from tests.processor_time import Measured, processorSeconds
from tests.wire.flexi_variants import LAYOUT_B
from tests.wire.transcoded import TranscodedScanner

#: Seconds of processor time that one input may take.
SLOW = 0.1
#: The longest input, in bytes.
LONGEST = 1 << 12
CORPUS = Path(__file__).with_name("corpus")
_REFUSALS = (BrokerError, HttpError)

Reader = Callable[[bytes], object]


def _scanning(scanner: Callable[[], Any]) -> Reader:
    """Return a reader that feeds a new scanner, in two pieces, of which the first byte says the place."""

    def read(data: bytes) -> None:
        fed = scanner()
        cut = data[0] * len(data) // 256 if data else 0
        for piece in (data[1:cut], data[max(1, cut) :]):
            for _ in fed.feed(piece):
                pass

    return read


def _layoutB() -> TranscodedScanner:
    """Return a scanner of a stream that is known to be in layout B."""
    scanner = TranscodedScanner(MOST, compiled=True)
    for _ in scanner.feed(LAYOUT_B.frame("BCAST", 0, {})):
        pass
    return scanner


def _header(data: bytes) -> None:
    """Read a header of the type that the first byte says, as map and as array."""
    kind, raw = MessageType(data[0] % len(MessageType)) if data else MessageType.PUB, data[1:]
    opened = openMapOrArrays(bytes(FIXED_BYTES) + raw)
    if opened.unreadable is not None:
        raise opened.unreadable
    checkHeader(kind, opened.fields)


def _converted(data: bytes) -> None:
    """Convert a payload to all forms, none of which may refuse it."""
    for content in (Content.MESSAGEPACK, Content.BYTES):
        message = Message(data, content)
        for convert in (toMessagePack, toBytes):
            convert(message)
        toUtf8(message).decode()
        if renderDelivery(message, "topic", "id").count(b"\n") != 1:
            raise Broken("a delivery of MiniMQ has more than one line")


def _json(data: bytes) -> None:
    try:
        toJson(data).decode()
    except ValueError:
        pass


def _blipPayloads(data: bytes) -> None:
    for name in ("Hello", "Auth", "Publish", "Subscribe", "Ack", "Poll", "Nack"):
        _refusable(getattr(blipmq_payload, f"decode{name}"))(data)


def _line(data: bytes) -> None:
    _refusable(parseCommand)(data)
    parseProduce(decodeText(data), lambda: "id")


def _frames(data: bytes) -> None:
    choice.readSmallFrames(data, 0, frozenset({TEXT}), MOST, True, lambda message: None)
    offset = 0
    while offset < len(data):
        offset = max(offset + 1, endOfFrame(data, offset))


def _pattern(data: bytes) -> None:
    checkPattern(data.decode("utf-8", "replace"))


def _request(data: bytes) -> None:
    """Read the head of a request as the broker does before it asks anybody."""
    head = RequestHead.parse(data)
    credentialsIn(head)
    Origins(frozenset({"https://a.example"}), True).admit(head.only("origin"), head.only("host"))
    if head.isUpgrade:
        webSocketDialect(head, frozenset({"fleximq", "identity"}))
    RequestHead.parse(withoutCredentialsIn(data))


def _refusable(reader: Reader) -> Reader:
    def read(data: bytes) -> None:
        try:
            reader(data)
        except _REFUSALS:
            pass

    return read


class Readers:
    """All readers; the last are the door of HTTP and that of a shared port, of a broker in memory."""

    def __init__(self, world: World | None = None) -> None:
        self.world = world or World()
        self.slowest = 0.0
        self.all: dict[str, Reader] = {
            "fleximq frames": _scanning(lambda: choice.FlexiScanner(MOST)),
            "fleximq layout": _scanning(lambda: TranscodedScanner(MOST, compiled=True)),
            "fleximq layout B": _scanning(_layoutB),
            "blipmq frames": _scanning(lambda: choice.BlipScanner(MOST)),
            "minimq lines": _scanning(lambda: LineScanner(MOST)),
            "fleximq header": _header,
            "payload": _converted,
            "JSON": _json,
            "blipmq payloads": _blipPayloads,
            "minimq line": _line,
            "identity text": parseText,
            "WebSocket frames": _frames,
            "pattern": _pattern,
            "HTTP head": _request,
            "HTTP": self._say,
        }
        self.order = list(self.all)

    def read(self, data: bytes) -> None:
        """Feed one input.

        :raises Broken: the reader raised an unforeseen exception, or was slow twice.
        """
        if not data:
            return
        name = self.order[-1 if data[0] == 255 else data[0] % (len(self.order) - 1)]
        reader = self.all[name]
        with Measured() as measured:
            try:
                _refusable(reader)(data[1:])
            except Broken:
                raise
            except Exception as error:
                raise Broken(f"{name}: {error!r}") from error
        took = measured.seconds
        if took > SLOW and (took := processorSeconds(lambda: _refusable(reader)(data[1:]))) > SLOW:
            raise Broken(f"{name}: {len(data)} bytes took {took * 1000:.0f} ms of the processor")
        self.slowest = max(self.slowest, took)

    def _say(self, data: bytes) -> None:
        self.world.say(HTTP, Batch(data, 1, True))

    def close(self) -> None:
        """End the broker in memory."""
        self.world.close()


def corpus() -> Iterator[tuple[str, bytes]]:
    """Yield the inputs kept with the tests, by name."""
    for path in sorted(CORPUS.iterdir()):
        yield path.name, path.read_bytes()
