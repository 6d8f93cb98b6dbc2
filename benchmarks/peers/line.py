"""A connection of the benchmark, and the small conversations that are held on it while no clock runs."""

import socket
from typing import ClassVar

from benchmarks.pump import Load, limitWaits
from benchmarks.refused import Refused

#: Connections from one source address, well below the ports that a system has for them.
_PER_ADDRESS = 20_000
#: Linux's IP_BIND_ADDRESS_NO_PORT, which Python names from 3.12 on.
_BIND_ADDRESS_NO_PORT = 24


class Line:
    """A blocking TCP connection to a port of this machine.

    ``who`` is whatever a protocol has to know of the connection: a client id, a name, or nothing.
    While very many are open, source addresses go on from 127.0.0.1 upwards, since each has so many ports only.
    """

    __slots__ = ("_rest", "socket", "who")
    _open: ClassVar[int] = 0

    def __init__(self, port: int) -> None:
        self.who: int | bytes | None = None
        self._rest = b""
        self.socket = self._connected(port)
        Line._open += 1

    def redial(self, port: int) -> None:
        """Connect again, in place of the present connection."""
        self.socket.close()
        self._rest = b""
        self.socket = self._connected(port)

    def _connected(self, port: int) -> socket.socket:
        made = socket.socket()
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limitWaits(made)
        if Line._open >= _PER_ADDRESS:
            made.setsockopt(socket.IPPROTO_IP, _BIND_ADDRESS_NO_PORT, 1)
            made.bind((f"127.0.0.{Line._open // _PER_ADDRESS + 1}", 0))
        try:
            made.connect(("127.0.0.1", port))
        except BaseException:
            made.close()
            raise
        return made

    def __enter__(self) -> "Line":
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
        Line._open -= 1

    def send(self, data: bytes) -> None:
        """Send all of this."""
        self.socket.sendall(data)

    def load(self, block: bytes, times: int) -> Load:
        """Return a load that sends a block so many times."""
        return Load(self.socket, block, times)

    def readUntil(self, marker: bytes) -> bytes:
        """Return everything up to the end of the first ``marker``; what follows it is kept.

        :raises Refused: if the connection ends, or stays silent.
        """
        said = self._rest
        while marker not in said:
            said += self.more(said)
        end = said.index(marker) + len(marker)
        self._rest = said[end:]
        return said[:end]

    def read(self, size: int) -> bytes:
        """Return the next ``size`` bytes.

        :raises Refused: if the connection ends, or stays silent.
        """
        said = self._rest
        while len(said) < size:
            said += self.more(said)
        self._rest = said[size:]
        return said[:size]

    def readWords(self, word: bytes, count: int) -> None:
        """Read until ``word`` has come so many times; what follows the last of them is kept.

        :raises Refused: if the connection ends, or stays silent, as it does after an answer without the word.
        """
        said = self._rest
        while said.count(word) < count:
            said += self.more(said)
        self._rest = said.split(word, count)[count]

    def more(self, said: bytes = b"") -> bytes:
        """Return whatever comes next; ``said`` is what came before, for the words of a refusal.

        :raises Refused: if the connection ends, or stays silent.
        """
        try:
            more = self.socket.recv(1 << 16)
        except (BlockingIOError, ConnectionError) as error:
            raise Refused(f"the broker did not answer ({type(error).__name__}) after {said[-80:]!r}") from error
        if not more:
            raise Refused(f"the broker closed the connection after {said[-80:]!r}")
        return more
