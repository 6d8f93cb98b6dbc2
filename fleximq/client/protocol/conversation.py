"""The client's side of one FlexiMQ connection, without I/O (FlexiMQ document 2 to 4, docs/reference/dialects.rst).

Methods named after a message return the bytes to send. Several threads may create messages at once; only one may
receive.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import Any, TypeVar

from fleximq.client import events
from fleximq.client.events import BROKER, Delivery, Event, Notification, Refusal, Reply, Request
from fleximq.client.payloads import challengeIn, errorText, unpacked
from fleximq.client.protocol.received_header import SHORT_BYTES, received
from fleximq.client.settings import JOINING_BYTES, PRIVATE_KEY
from fleximq.compiled import choice
from fleximq.errors import TooLarge
from fleximq.limits import GIBIBYTE, KIBIBYTE, MEBIBYTE
from fleximq.status import Status
from fleximq.values.urls import USUAL_PORTS, Url
from fleximq.wire.fleximq_frame import encodeFrame, encodeMessage, payloadOf, readPrefix
from fleximq.wire.fleximq_header import MessageType, peek, peekId, peekPath, reportsError
from fleximq.wire.fleximq_scanner import FIXED_BYTES, payloads, singleFrames
from fleximq.wire.websocket_client import WebSocketClientStream

#: Limit of the caches of encoded and decoded headers; they are cleared when full.
_HEADS = 1024
#: Longer envelopes are not remembered.
_REMEMBERED_BYTES = 1024
#: Longer payloads of answers are views of the received bytes, not copies.
_COPIED_BYTES = 64 * KIBIBYTE
#: Size of the length before a payload.
_LENGTH_BYTES = 8


class Conversation:
    """One connection; ``limit`` is the size limit of a received message in bytes, ``unpack`` decodes payloads.

    ``id`` is the client's own id, 0 until it has joined. ``toSend`` has bytes that must be sent unchanged as soon as
    possible; everything else is passed through :meth:`framed` first.
    """

    def __init__(self, limit: int = 1024 * MEBIBYTE, unpack: Callable[[bytes], Any] = unpacked) -> None:
        self.id = self._receivedBytes = 0
        self.toSend: list[bytes] = []
        self._delivery = _decodedBy(unpack, Delivery)
        self._request = _decodedBy(unpack, Request)
        self._notification = _decodedBy(unpack, Notification)
        # The broker adds offsets and ids to headers that may already have the maximum length.
        self._scanner = choice.FlexiScanner(limit, header=limit)
        self._heads: dict[str, bytes] = {}
        #: Topic, publisher and header of received publications by envelope.
        self._publications: dict[bytes, _Publication] = {}
        self._signedJoin: Callable[[str], bytes] | None = None

    def begin(self, credentials: Mapping[str, str] | None = None, name: str | None = None) -> None:
        """Put the JOIN into ``toSend``, or keep it until it can be sent."""
        self.toSend.append(self.join(credentials, name))

    def framed(self, data: bytes) -> bytes:
        """Return messages in the framing of this kind of connection."""
        return data

    def join(self, credentials: Mapping[str, str] | None = None, name: str | None = None) -> bytes:
        """Return a JOIN (FlexiMQ document 5.2); a private key signs a challenge of the broker in a second one."""
        fields: dict[str, Any] = {"client_name": name} if name else {}
        if credentials and credentials.get("type") == PRIVATE_KEY:
            from fleximq.values.key_pairs import publicKeyOf, sign  # cryptography loads slowly

            key = credentials[PRIVATE_KEY]
            auth = fields["auth"] = {"type": "public_key", "public_key": publicKeyOf(key)}
            self._signedJoin = lambda challenge: encodeMessage(
                MessageType.JOIN, 0, fields | {"auth": auth | {"signature": sign(key, challenge)}}
            )
        elif credentials:
            fields["auth"] = dict(credentials)
        return encodeMessage(MessageType.JOIN, 0, fields) if fields else encodeFrame(MessageType.JOIN, 0)

    def publication(self, topic: str, payload: bytes, keys: Mapping[str, Any] | None = None) -> bytes:
        """Return a PUB; ``keys`` are further fields of its header, e.g. ``message_id``."""
        if keys:
            return encodeMessage(MessageType.PUB, self.id, {"topic": topic, **keys}, payload)
        return b"".join((self._head(topic), len(payload).to_bytes(8, "big"), payload))

    def publications(
        self, topic: str, payloads: Sequence[bytes], areBinary: bool = False, keys: Mapping[str, Any] | None = None
    ) -> bytes:
        """Return PUBs, which the broker accepts as one run, 0.1 us for each; packs bytes that ``areBinary``."""
        heads = _Heads(self._headWith(topic, keys) if keys else self._head(topic), areBinary)
        return b"".join(chain.from_iterable(zip(map(heads.__getitem__, map(len, payloads)), payloads, strict=True)))

    def _head(self, topic: str) -> bytes:
        head = self._heads.get(topic)
        if head is None:
            if len(self._heads) >= _HEADS:
                self._heads.clear()
            head = self._heads[topic] = self._headWith(topic, {})
        return head

    def _headWith(self, topic: str, keys: Mapping[str, Any]) -> bytes:
        return encodeMessage(MessageType.PUB, self.id, {"topic": topic, **keys})[:-_LENGTH_BYTES]

    def subscription(self, topic: str, start: object = None) -> bytes:
        """Return a SUB; ``start`` is its ``from``: "first", "last", an offset, ``{"time": milliseconds}`` or None."""
        fields = {"topic": topic} | ({} if start is None else {"from": start})
        return encodeMessage(MessageType.SUB, self.id, fields)

    def unsubscription(self, topic: str) -> bytes:
        """Return an UNSUB with the same topic or pattern as its SUB."""
        return encodeMessage(MessageType.UNSUB, self.id, {"topic": topic})

    def consumption(self, queue: str, prefetch: int) -> bytes:
        """Return a SUB that makes the client a consumer of a queue."""
        return encodeMessage(MessageType.SUB, self.id, {"topic": queue, "queue": queue, "prefetch": prefetch})

    def endOfConsumption(self, queue: str) -> bytes:
        """Return the UNSUB of a consumer."""
        return encodeMessage(MessageType.UNSUB, self.id, {"topic": queue, "queue": queue})

    def request(self, target: int | str, path: str, payload: bytes, requestId: str) -> bytes:
        """Return a REQ to a client, by id or name; its answer has the same ``requestId``."""
        fields = {"routing": [_entry(target, path)], "reqrep": {"type": "request", "id": requestId}}
        return encodeMessage(MessageType.REQ, self.id, fields, payload)

    def reply(self, to: Request, payload: bytes, status: int = Status.OK) -> bytes:
        """Return the REP to a request."""
        fields = {
            "routing": [{"client_id": to.sender, "path": to.path}],
            "reqrep": {"type": "correlation", "id": to.id},
            "status": int(status),
        }
        return encodeMessage(MessageType.REP, self.id, fields, payload)

    def notification(self, targets: Sequence[int | str], path: str, payload: bytes) -> bytes:
        """Return a NOTIF to these clients, by their ids or names."""
        routing = [_entry(target, path) for target in targets]
        return encodeMessage(MessageType.NOTIF, self.id, {"routing": routing}, payload)

    def broadcast(self, payload: bytes) -> bytes:
        """Return a BCAST."""
        return encodeFrame(MessageType.BCAST, self.id, b"", payload)

    def ping(self, timestamp: int, interval: int | None = None) -> bytes:
        """Return a PING, answered after all earlier messages; ``interval`` proposes seconds of idle time."""
        keepalive = {"timestamp": timestamp} | ({} if interval is None else {"interval": interval})
        return encodeMessage(MessageType.PING, self.id, {"keepalive": keepalive})

    def pong(self, timestamp: int) -> bytes:
        """Return a PONG."""
        return encodeMessage(MessageType.PONG, self.id, {"keepalive": {"timestamp": timestamp}})

    def runs(self, data: bytes) -> Iterator[Event | list[Delivery]]:
        """Yield the events in these bytes, in order, consecutive deliveries of a topic as one list.

        Consume the iterator completely. BadFraming, or TooLarge for a message over the limit, is raised after earlier
        events; the connection cannot be used any longer.
        """
        if not self.id:
            self.checkJoining(len(data))
        known, delivery = self._publications, self._delivery
        for envelope, source, start, end, count in self._scanner.spans(data):
            head = len(envelope)
            publication = known.get(envelope) or self._publicationIn(envelope)
            if publication is None:
                yield from self._others(envelope, singleFrames(source[start:end], head))
            elif count == 1:
                topic, sender, header = publication
                yield [delivery(topic, source[start + head + _LENGTH_BYTES : end], sender, header)]
            else:
                topic, sender, header = publication
                found = payloads(source[start:end], head)
                yield list(map(delivery, repeat(topic), found, repeat(sender), repeat(header)))

    def checkJoining(self, received: int) -> None:
        """Count received bytes; raises TooLarge if they are too many without an answer to the JOIN."""
        self._receivedBytes += received
        if self._receivedBytes > JOINING_BYTES:
            raise TooLarge(f"more than {JOINING_BYTES} bytes arrived before the answer to the JOIN")

    def _publicationIn(self, envelope: bytes) -> "_Publication | None":
        """Return what the envelope of a publication says; None for other messages."""
        _, kind, sender = readPrefix(envelope)
        if kind != MessageType.PUB:
            return None
        header = peek(envelope[FIXED_BYTES:])
        size = len(envelope)
        # Further fields are mostly different in each message.
        isRemembered = len(header) == 1 and size <= _REMEMBERED_BYTES
        if not isRemembered and size > FIXED_BYTES + SHORT_BYTES:
            header = received(header, size - FIXED_BYTES)
        found = str(header.get("topic", "")), sender, header
        if isRemembered:
            if len(self._publications) >= _HEADS:
                self._publications.clear()
            self._publications[envelope] = found
        return found

    def _others(self, envelope: bytes, frames: list[bytes]) -> Iterator[Event]:
        _, kind, sender = readPrefix(envelope)
        head = len(envelope)
        header = received(peek(envelope[FIXED_BYTES:]), head - FIXED_BYTES)
        for frame in frames:
            if kind == MessageType.REP and self.id and len(frame) > _COPIED_BYTES:
                event = self._reply(sender, header, memoryview(frame)[head + _LENGTH_BYTES :])
            else:
                event = self._event(kind, sender, header, payloadOf(frame, head))
            if event is not None:
                yield event

    def _event(self, kind: int, sender: int, header: Mapping[str, Any], payload: bytes) -> Event | None:
        if kind == MessageType.REP:
            return self._reply(sender, header, payload) if self.id else self._welcome(sender, header, payload)
        if kind == MessageType.REQ:
            requestId = peekId(header)
            return None if requestId is None else self._request(requestId, peekPath(header), payload, sender, header)
        if kind == MessageType.NOTIF:
            if sender == BROKER and reportsError(header):
                return _refusal(header, payload)
            return self._notification(peekPath(header), payload, sender, header)
        if kind == MessageType.BCAST:
            return self._notification(None, payload, sender, header)
        keepalive = header.get("keepalive")
        stamp = keepalive.get("timestamp") if isinstance(keepalive, Mapping) else None
        if isinstance(stamp, int) and kind in (MessageType.PING, MessageType.PONG):
            return events.Pinged(stamp) if kind == MessageType.PING else events.Ponged(stamp)
        return None

    def _welcome(self, sender: int, header: Mapping[str, Any], payload: bytes) -> Event | None:
        """Return the event for the answer to the JOIN; None for a challenge."""
        if reportsError(header):
            signed, challenge = self._signedJoin, challengeIn(payload)
            if signed is None or challenge is None:
                return _refusal(header, payload)
            self.toSend.append(self.framed(signed(challenge)))
            self._signedJoin = None
            return None
        self.id = sender
        self._heads.clear()
        return events.Joined(sender)

    def _reply(self, sender: int, header: Mapping[str, Any], payload: bytes | memoryview) -> Event | None:
        requestId = peekId(header)
        if requestId is not None:
            return Reply(requestId, _status(header), payload, sender, header)
        return _refusal(header, bytes(payload)) if sender == BROKER and reportsError(header) else None


#: The topic, publisher and header of a publication.
_Publication = tuple[str, int, Mapping[str, Any]]
_Kind = TypeVar("_Kind", Delivery, Request, Notification)


def _decodedBy(unpack: Callable[[bytes], Any], kind: type[_Kind]) -> type[_Kind]:
    """Return this kind of event with a ``value`` that ``unpack`` decodes."""
    if unpack is unpacked:
        return kind
    return type(kind.__name__, (kind,), {"__slots__": (), "value": property(lambda self: unpack(self.payload))})


def _entry(target: int | str, path: str) -> dict[str, Any]:
    return {"client_name" if isinstance(target, str) else "client_id": target, "path": path}


class _Heads(dict[int, bytes]):
    """The bytes of a publication before its payload, by the payload's size."""

    def __init__(self, head: bytes, areBinary: bool) -> None:
        super().__init__()
        self._head = head
        self._areBinary = areBinary

    def __missing__(self, size: int) -> bytes:
        own = _binaryHead(size) if self._areBinary else b""
        found = self[size] = self._head + (len(own) + size).to_bytes(_LENGTH_BYTES, "big") + own
        return found


def _binaryHead(size: int) -> bytes:
    """Return the MessagePack header of a bin of this size."""
    for kind, width in ((b"\xc4", 1), (b"\xc5", 2), (b"\xc6", 4)):
        if size < 1 << (8 * width):
            return kind + size.to_bytes(width, "big")
    raise ValueError(f"{size} bytes are more than MessagePack can hold in one value")


def _status(header: Mapping[str, Any]) -> int:
    status = header.get("status")
    return status if isinstance(status, int) else int(Status.OK)


def _refusal(header: Mapping[str, Any], payload: bytes) -> Refusal:
    return Refusal(_status(header), errorText(payload), peekPath(header), payload)


#: docs/reference/dialects.rst: the subprotocol for FlexiMQ in binary frames.
SUBPROTOCOL = "fleximq"


def conversationOn(url: Url, unpack: Callable[[bytes], Any]) -> Conversation:
    """Return a new conversation for a connection to this URL."""
    return WebSocketConversation(url, unpack) if url.isWebSocket else Conversation(unpack=unpack)


class WebSocketConversation(Conversation):
    """One connection inside a WebSocket, in binary frames."""

    def __init__(self, url: Url, unpack: Callable[[bytes], Any]) -> None:
        super().__init__(unpack=unpack)
        host = f"[{url.host}]" if ":" in url.host else url.host or "localhost"
        place = host if url.port == USUAL_PORTS[url.scheme] else f"{host}:{url.port}"
        self._stream = WebSocketClientStream(place, url.path, SUBPROTOCOL, GIBIBYTE)
        self.toSend = self._stream.due
        self._join: bytes | None = None

    def begin(self, credentials: Mapping[str, str] | None = None, name: str | None = None) -> None:
        self._join = self.join(credentials, name)

    def framed(self, data: bytes) -> bytes:
        return self._stream.framed(data)

    def runs(self, data: bytes) -> Iterator[Event | list[Delivery]]:
        if not self.id:
            self.checkJoining(len(data))
        plain = self._stream.received(data)
        if self._stream.isOpen and self._join is not None:
            self.toSend.append(self.framed(self._join))
            self._join = None
        if plain:
            yield from super().runs(plain)
