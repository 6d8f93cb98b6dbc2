"""The published vectors: what the broker writes today, and what another implementation makes of it."""

import ast
import json
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format.frame import FrameKind, completeFrame
from tests.journal import minimal_decoder
from tests.journal.frames import chained
from tests.journal.make_vectors import FOLDER, NAMES, POSITION, frames, meaning

VECTORS = json.loads((FOLDER / "vectors.json").read_text())


class VectorTests(SynchronousTestCase):
    """The files under ``vectors/``."""

    def test_everyKind(self) -> None:
        """There is one of every kind."""
        self.assertEqual({each["kind"] for each in VECTORS["frames"]}, {kind.name for kind in FrameKind})

    def test_files(self) -> None:
        """The files have the bytes that ``vectors.json`` has, and the segment has all of them."""
        raws = [bytes.fromhex(each["hex"]) for each in VECTORS["frames"]]
        self.assertEqual([(FOLDER / f"{name}.fxj").read_bytes() for name in NAMES], raws)
        self.assertEqual((FOLDER / "segment.fxj").read_bytes(), b"".join(raws))
        self.assertEqual([each["name"] for each in VECTORS["frames"]], NAMES)

    def test_written(self) -> None:
        """The broker writes these very bytes."""
        self.assertEqual(
            [each.hex() for each in chained(frames(), POSITION)], [each["hex"] for each in VECTORS["frames"]]
        )

    def test_read(self) -> None:
        """The broker reads in them what they mean."""
        for each in VECTORS["frames"]:
            self.assertEqual({"name": each["name"]} | meaning(bytes.fromhex(each["hex"])), each)

    def test_segment(self) -> None:
        """The segment is read frame by frame: each says where it stands, and is chained to the one before it."""
        raw = (FOLDER / "segment.fxj").read_bytes()
        position, previous = 0, 0
        while position < len(raw):
            header, _ = completeFrame(raw, position)
            self.assertEqual((header.position, header.previous), (VECTORS["position"] + position, previous))
            self.assertEqual(header.segment, VECTORS["segment"])
            position, previous = position + header.length, header.crc


class MinimalDecoderTests(SynchronousTestCase):
    """The decoder that was written from the page."""

    def test_same(self) -> None:
        """It reads in every vector what the broker reads."""
        for each in VECTORS["frames"]:
            found = minimal_decoder.decode(bytes.fromhex(each["hex"]))
            self.assertEqual(found, {name: each[name] for name in ("kind", "header", "body")})

    def test_damaged(self) -> None:
        """It refuses damage."""
        raw = bytearray.fromhex(VECTORS["frames"][2]["hex"])
        raw[100] ^= 1
        self.assertRaises(ValueError, minimal_decoder.decode, bytes(raw))

    def test_independent(self) -> None:
        """It imports nothing of the broker."""
        tree = ast.parse(Path(minimal_decoder.__file__).read_text())
        names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        names |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        self.assertEqual(names, {"struct", "zlib", "typing", "msgpack"})
