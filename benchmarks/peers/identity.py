"""Our broker in the Identity dialect: text over WebSocket (Identity document)."""

from collections.abc import Sequence

from benchmarks.peers import websocket
from benchmarks.peers.fleximq import FlexiMQBroker
from benchmarks.peers.line import Line
from benchmarks.peers.peer import Peer, Who


class IdentityWords(Peer):
    """What Identity clients and brokers say, whoever the broker is.

    Only a subscriber may publish, so the publisher is one of the subscribers and gets its own messages.
    """

    publisherListens = True

    def hello(self) -> bytes:
        return websocket.upgrade(self.port)

    def welcome(self, said: bytes) -> Who:
        head, _, frames = said.partition(b"\r\n\r\n")
        words = websocket.texts(frames)
        if not head.startswith(b"HTTP/1.1 101 ") or len(words) != 2 or not words[1].startswith(b"CHANNELS:"):
            raise ValueError("not greeted yet")
        return words[0].removeprefix(b"IDENTITY:")

    def subscribe(self, line: Line, topics: Sequence[bytes]) -> None:
        for topic in topics:
            line.send(websocket.fromClient(b"SUBSCRIBE:" + topic))
            line.readUntil(websocket.fromServer(b"SUB-ACK:" + topic))

    def barrier(self, line: Line) -> None:
        line.send(websocket.ping(b"barrier"))
        line.readUntil(websocket.pong(b"barrier"))

    def publication(self, who: Who, topic: bytes, payload: bytes) -> bytes:
        return websocket.fromClient(b"PUBLISH:%s:%s" % (topic, payload))

    def delivery(self, who: Who, topic: bytes, payload: bytes, place: int = 0) -> bytes:
        assert isinstance(who, bytes)
        return websocket.fromServer(b"MSG:%s:%s:%s" % (topic, who, payload))


class Identity(IdentityWords, FlexiMQBroker):
    """Our broker, spoken to in the Identity dialect."""
