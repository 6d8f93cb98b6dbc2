"""Publishers of MiniMQ at several brokers, and consumers that take what they publish from queues."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from random import Random

#: Seconds that a client waits for an answer.
_PATIENCE = 5.0


class MiniClients:
    """Publishers and consumers of MiniMQ; ``confirmed`` has the ids of stored messages, ``taken`` of delivered ones."""

    def __init__(self, addresses: list[tuple[str, int]], seed: int) -> None:
        self._addresses = addresses
        self._random = Random(seed)
        self._stop = threading.Event()
        self._stopConsuming = threading.Event()
        self.confirmed: list[str] = []
        self.taken: Counter[str] = Counter()
        self.last = time.monotonic()
        self.gaps: list[float] = []
        self._lock = threading.Lock()
        self._publishers = [threading.Thread(target=self._publish, args=(number,)) for number in range(3)]
        self._consumers = [threading.Thread(target=self._consume, args=(number,)) for number in range(3)]
        for each in (*self._publishers, *self._consumers):
            each.start()

    @contextmanager
    def _connection(self) -> Iterator[socket.socket]:
        with socket.create_connection(self._random.choice(self._addresses), 2) as connection:
            connection.settimeout(_PATIENCE)
            yield connection

    def _publish(self, number: int) -> None:
        count = 0
        while not self._stop.is_set():
            with suppress(OSError), self._connection() as connection:
                answers = connection.makefile("rb")
                while not self._stop.is_set():
                    ids = [f"p{number}-{count + index}" for index in range(5)]
                    count += len(ids)
                    lines = "".join(f"PRODUCE:{id}:::q{number}:::{id}\n" for id in ids)
                    connection.sendall(lines.encode())
                    for id in ids:
                        if answers.readline().decode().strip() != id:
                            raise OSError("closed, or refused")
                        self._confirm(id)
                    time.sleep(0.02)
            time.sleep(0.05)

    def _confirm(self, id: str) -> None:
        with self._lock:
            now = time.monotonic()
            if now - self.last > 1:
                self.gaps.append(round(now - self.last, 2))
            self.last = now
            self.confirmed.append(id)

    def _consume(self, number: int) -> None:
        while not self._stopConsuming.is_set():
            with suppress(OSError), self._connection() as connection:
                answers = connection.makefile("rb")
                while not self._stopConsuming.is_set():
                    connection.sendall(f"CONSUME:q{number}\n".encode() * 50)
                    lines = [answers.readline().decode().strip() for _ in range(50)]
                    if any(line == "" or line.startswith("ERROR") for line in lines):
                        raise OSError("closed, or refused")
                    ids = [line.split(":::")[0] for line in lines if line != "NO_MSG"]
                    with self._lock:
                        self.taken.update(ids)
                    connection.sendall("".join(f"ACK:{id}\n" for id in ids).encode())
                    time.sleep(0.05)
            time.sleep(0.05)

    def stop(self, seconds: float) -> None:
        """End the publishers, and the consumers when they have taken everything, or after some seconds."""
        self._stop.set()
        for each in self._publishers:
            each.join(2 * _PATIENCE)
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.taken.keys() >= set(self.confirmed):
            time.sleep(0.2)
        self._stopConsuming.set()
        for each in self._consumers:
            each.join(2 * _PATIENCE)
