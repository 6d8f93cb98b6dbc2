"""A little FlexiMQ broker with a fault, to see that the benchmark notices.

Usage: ``python forgetful.py PORT FAULT``; faults are listed in :data:`FAULTS`. It speaks just enough of the dialect
for publications: JOIN, SUB, PUB, PING. The fault strikes at message number 100, which no check before a run reaches.
"""

import asyncio
import struct
import sys
from collections import defaultdict

FAULTS = ("none", "lose", "double", "answer", "close", "first")
_AT = 100


class Broker:
    """Delivers everything, but for its fault."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.clients = 0
        self.published = 0
        self.subscribers: defaultdict[bytes, list[asyncio.StreamWriter]] = defaultdict(list)

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Talk to one client until it goes."""
        me = 1000 + self.clients
        self.clients += 1
        while True:
            try:
                frame = await reader.readexactly(26)
                frame += await reader.readexactly(struct.unpack_from(">I", frame, 22)[0])
                frame += await reader.readexactly(8)
                frame += await reader.readexactly(struct.unpack_from(">Q", frame, len(frame) - 8)[0])
            except (asyncio.IncompleteReadError, ConnectionError):
                return
            self._message(me, frame, writer)

    def _message(self, me: int, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header = frame[26 : 26 + struct.unpack_from(">I", frame, 22)[0]]
        match frame[1]:
            case 0:
                writer.write(_frame(2, me, b"\x81\xa6status\xcc\xc8"))
            case 5:
                self.published += 1
                self._publish(header, frame, writer)
            case 6:
                self.subscribers[header].append(writer)
            case 8:
                stamp = header[header.index(b"timestamp") + 9 :][:5]
                writer.write(_frame(9, 1, b"\x81\xa9keepalive\x81\xa9timestamp" + stamp))

    def _publish(self, header: bytes, frame: bytes, writer: asyncio.StreamWriter) -> None:
        strikes = self.published == _AT
        if self.fault == "first" and self.published == 1:
            frame = frame[:-1] + b"?"
        if strikes and self.fault == "answer":
            writer.write(b"an error of a kind")
        for each in self.subscribers[header]:
            if strikes and self.fault == "close":
                each.close()
            elif strikes and self.fault == "double":
                each.write(frame + frame)
            elif not strikes or self.fault != "lose":
                each.write(frame)


def _frame(kind: int, client: int, header: bytes) -> bytes:
    return struct.pack(">BBI16xI", 1, kind, client, len(header)) + header + bytes(8)


async def main(port: int, fault: str) -> None:
    """Serve for ever."""
    async with await asyncio.start_server(Broker(fault).converse, "127.0.0.1", port) as server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), sys.argv[2]))
