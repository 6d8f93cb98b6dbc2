"""The messages that are measured with."""

from itertools import islice
from pathlib import Path
from zlib import crc32

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from tests.pipeline.installed import missing as skip

if not skip:
    from benchmarks.pipeline.material import TOPICS, Material


class _Client:
    """Takes what is published."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []
        self.flushed = False

    def publish_many(self, topic: str, payloads: list[bytes]) -> None:
        """Remember it."""
        self.published += [(topic, payload) for payload in payloads]

    def flush(self, timeout: float | None) -> None:
        """Remember it."""
        self.flushed = True


class MaterialTests(SynchronousTestCase):
    """Messages of a size."""

    def material(self, rows: int, size: int) -> "Material":
        """Return some."""
        return Material(Path(self.mktemp()), rows, size)

    def test_size(self) -> None:
        """Each has as many bytes as was said, whatever the size."""
        for size in (80, 100, 300, 330, 4096):
            values = self.material(50, size).values()
            self.assertEqual({len(msgpack.packb(value)) for value in values}, {size})

    def test_same(self) -> None:
        """They are the same ones every time, and each is different."""
        one, two = (list(self.material(3000, 100).values()) for _ in range(2))
        self.assertEqual(one, two)
        self.assertEqual(len({value["id"] for value in one}), 3000)

    def test_published(self) -> None:
        """All are published, to all topics, and what they sum up to is known."""
        material, client = self.material(10_001, 100), _Client()
        material.publish(client)  # type: ignore[arg-type]
        payloads = [payload for _, payload in client.published]
        self.assertEqual(
            [msgpack.unpackb(payload) for payload in islice(payloads, 5)], list(islice(material.values(), 5))
        )
        self.assertEqual((len(payloads), sum(map(crc32, payloads))), (10_001, material.crc))
        self.assertEqual(len({topic for topic, _ in client.published}), TOPICS)
        self.assertTrue(client.flushed)

    def test_shares(self) -> None:
        """One part after the other is what all at once would be."""
        material, client = self.material(2000, 100), _Client()
        material.publish(client, 0.95)  # type: ignore[arg-type]
        self.assertEqual(len(client.published), 1900)
        material.publish(client)  # type: ignore[arg-type]
        found = [msgpack.unpackb(payload) for _, payload in client.published]
        self.assertEqual(found, list(self.material(2000, 100).values()))
        self.assertEqual(sum(crc32(payload) for _, payload in client.published), material.crc)
