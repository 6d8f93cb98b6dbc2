"""Messages that are like those of real programs, and what they became: a journal, Parquet files of the same rows."""

from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack
import numpy as np

from fleximq.client.blocking import Client
from fleximq.client.payloads import Packed

TOPICS = 10
#: Neighbouring messages of one topic.
_RUN = 500
#: So many different words, each with its space.
_WORDS, _LETTERS = 4096, 8
#: The columns of a message's map, for those who decode it.
DDL = "id BIGINT, place STRING, temperature DOUBLE, ok BOOLEAN, text STRING"


class Material:
    """``rows`` messages of ``size`` bytes, in maps of five fields.

    ``journal`` is where they are kept, ``crc`` the sum of all payloads' check sums, ``parquet`` is a folder
    for files of the same rows, ``sealed`` one for the sealed history of the journal.
    """

    def __init__(self, folder: Path, rows: int, size: int) -> None:
        self.folder = folder
        self.rows = rows
        self.size = size
        self.crc = 0
        self.journal, self.parquet, self.sealed = (folder / name for name in ("journal", "parquet", "sealed"))
        self._left = self.values()
        self._topics = cycle(f"weather.{number}" for number in range(TOPICS))
        folder.mkdir()

    def publish(self, client: Client, share: float = 1) -> None:
        """Publish this share of all of them, or what is left, to a few topics in turn."""
        values = islice(self._left, round(self.rows * share))
        while payloads := [Packed(msgpack.packb(value)) for value in islice(values, _RUN)]:
            self.crc += sum(map(crc32, payloads))
            client.publish_many(next(self._topics), payloads)
        client.flush(None)

    def values(self) -> Iterator[dict[str, Any]]:
        """Yield them: maps that are packed in exactly so many bytes, always the same ones."""
        chance = np.random.default_rng(5)
        words = chance.integers(97, 123, (_WORDS, _LETTERS), np.uint8)
        words[:, -1] = 32
        places = [bytes(word[:6]).decode() for word in words[:200]]
        empty = {"id": 1 << 40, "place": places[0], "temperature": 0.5, "ok": True, "text": ""}
        room = self.size - len(msgpack.packb(empty))
        # What a longer text takes besides its letters: the form of its length.
        room -= 0 if room <= 31 else 1 if room <= 256 else 2
        portion = max(1, (1 << 22) // self.size)
        for start in range(0, self.rows, portion):
            count = min(portion, self.rows - start)
            picked = words[chance.integers(0, _WORDS, (count, room // _LETTERS + 1))].reshape(count, -1)[:, :room]
            text = np.ascontiguousarray(picked).tobytes().decode()
            temperatures = chance.normal(10, 8, count).round(2).tolist()
            ids, where = chance.integers(1 << 33, 1 << 62, count).tolist(), chance.integers(0, 200, count).tolist()
            for place in range(count):
                yield {
                    "id": ids[place],
                    "place": places[where[place]],
                    "temperature": temperatures[place],
                    "ok": temperatures[place] > 0,
                    "text": text[place * room : (place + 1) * room],
                }
