"""The whole measurement, small: in a process of its own, for it ends its sessions."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.nightly import nightly
from tests.pipeline.installed import missing as skip

if not skip:
    from pyspark.sql import SparkSession

    from benchmarks.pipeline import __main__ as program
    from benchmarks.pipeline.reading import check
    from benchmarks.pipeline.scenes import SCENES
    from benchmarks.pipeline.writing import visible
    from benchmarks.refused import Refused
    from benchmarks.results import Results
    from tests.pipeline.session import sharedSession

ROOT = Path(__file__).parents[3]


class ProgramTests(SynchronousTestCase):
    """``python -m benchmarks.pipeline``."""

    @nightly
    def test_quick(self) -> None:
        """Every scene has a number, nothing is refused, and the page for the documentation is written."""
        sharedSession()  # or there is no Java
        json_, rst = Path(self.mktemp()).absolute(), Path(self.mktemp()).absolute()
        words = ["--quick", "--masters", "local[2]", "--json", str(json_), "--rst", str(rst)]
        ended = subprocess.run(
            [sys.executable, "-m", "benchmarks.pipeline", *words], cwd=ROOT, capture_output=True, text=True, timeout=540
        )
        self.assertTrue(json_.exists(), ended.stderr)
        scenes = {scene["scene"]: scene for scene in json.loads(json_.read_text())["scenes"]}
        self.assertEqual({name: scene["refused"] for name, scene in scenes.items() if scene["refused"]}, {})
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(list(scenes), [scene.name for scene in SCENES])
        for scene in scenes.values():
            for row in scene["rows"]:
                self.assertGreater(row["median"], 0, row)
        self.assertIn("benchmarks.pipeline --rst", rst.read_text())

    def test_refused(self) -> None:
        """A way that fails has no number, and the others have."""
        scene = SCENES[0]

        def fails(stand: Any) -> Any:
            raise Refused("a row was lost")

        def runs(stand: Any) -> Any:
            return contextlib.nullcontext(lambda: {"rows/s": 1.0})

        scene = replace(scene, contenders={"fleximq": fails, "parquet": runs})
        results: Results = program.measure(None, scene, 2)  # type: ignore[arg-type]
        self.assertEqual(results.refused, {"fleximq": "a row was lost"})
        self.assertEqual(results.values("parquet", "rows/s"), [1.0, 1.0])

    def test_unknown(self) -> None:
        """A scene that is none is refused."""
        self.assertEqual(self.assertRaises(SystemExit, program.main, ["--scenes", "nothing"]).code, 2)


class CheckTests(SynchronousTestCase):
    """What is looked at so that nothing is lost."""

    @nightly
    def test_contents(self) -> None:
        """Rows that are others are refused, though there are as many."""
        spark: SparkSession = sharedSession()
        table = spark.createDataFrame([(bytearray(b"abc"),), (bytearray(b"def"),)], "value BINARY")

        class Wanted:
            rows = 2
            crc = 891568578 + 214229345

        check(table, Wanted)  # type: ignore[arg-type]
        for attribute, value in (("crc", 1), ("rows", 3)):
            wanted = type("Other", (Wanted,), {attribute: value})
            self.assertRaises(Refused, check, table, wanted)

    def test_visible(self) -> None:
        """Hidden files, and those in hidden folders, are not what a reader sees."""
        folder = Path(self.mktemp())
        for name in ("a.parquet", "t=1/b.parquet", "_own/c.parquet", "t=1/.d.parquet", "e.txt"):
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(b"")
        self.assertEqual({file.name for file in visible(folder)}, {"a.parquet", "b.parquet"})

    def test_comeAndGo(self) -> None:
        """Folders that are removed while others are listed do no harm."""
        folder, listed = Path(self.mktemp()), os.scandir
        (folder / "t=1").mkdir(parents=True)
        (folder / "t=1" / "a.parquet").write_bytes(b"")
        (folder / "gone").mkdir()

        def scandir(path: str) -> Any:
            if Path(path).name == "gone":
                Path(path).rmdir()
            return listed(path)

        self.patch(os, "scandir", scandir)
        self.assertEqual([file.name for file in visible(folder)], ["a.parquet"])
