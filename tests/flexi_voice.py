"""What FlexiMQ clients of tests can say, whatever carries it and whichever variant of the protocol they use."""

from typing import Any

import msgpack

from tests.wire.flexi_variants import MAPS, Variant


class FlexiVoice:
    """One FlexiMQ client's words; ``id`` is 0 until it has joined. Subclasses say how bytes travel."""

    id = 0
    variant: Variant = MAPS
    _stamp = 0

    def say(self, data: bytes) -> Any:
        """Send these bytes."""
        raise NotImplementedError

    def barrier(self) -> list[Any]:
        """PING, and return what came before its PONG; everything said before was worked off then."""
        raise NotImplementedError

    def joinWith(self, header: Any) -> dict[str, Any]:
        """Send a JOIN, with a header that shows the variant, and return the header that its answer must have."""
        if header is None and self.variant is not MAPS:
            header = {}
        self.send("JOIN", header)
        welcome = {} if self.variant.positional else {"status": 200}
        reqrep = header.get("reqrep") if isinstance(header, dict) else None
        return welcome | ({"reqrep": {"type": "correlation", "id": reqrep["id"]}} if reqrep else {})

    def send(self, kind: str | int, header: Any = None, payload: bytes = b"", **more: Any) -> Any:
        """Send a frame with this client's id, see :func:`tests.wire.flexi_frames.frame`."""
        self.say(self.variant.frame(kind, more.pop("client_id", self.id), header, payload, **more))
        return self

    def tell(self, kind: str, header: Any = None, *value: Any) -> Any:
        """Send a message; a further argument is the value of its payload."""
        return self.send(kind, header, *(msgpack.packb(each) for each in value))

    def publish(self, topic: str, *value: Any, **header: Any) -> Any:
        """PUB to a topic; further keywords are header fields."""
        return self.tell("PUB", {"topic": topic, **header}, *value)

    def subscribe(self, *topics: str) -> Any:
        """SUB to each of these."""
        for topic in topics:
            self.tell("SUB", {"topic": topic})
        return self

    def request(self, target: int, path: str, id: str, *value: Any) -> Any:
        """REQ to a client."""
        header = {"routing": [{"client_id": target, "path": path}], "reqrep": {"type": "request", "id": id}}
        return self.tell("REQ", header, *value)

    def reply(self, target: int, id: str, *value: Any, **header: Any) -> Any:
        """REP to a client; further keywords are header fields."""
        fields = {"routing": [{"client_id": target}], "reqrep": {"type": "correlation", "id": id}, **header}
        return self.tell("REP", fields, *value)

    def answer(self, kind: str | int, header: Any = None, payload: bytes = b"", **more: Any) -> list[Any]:
        """Send a frame and return what came before the PONG of a PING behind it."""
        self.send(kind, header, payload, **more)
        return self.barrier()

    def ping(self) -> Any:
        """PING with a timestamp that was not used before, and return the header that its PONG will have."""
        self._stamp += 1
        header = {"keepalive": {"timestamp": self._stamp}}
        self.tell("PING", header)
        return header
