"""``fleximq journal``: what it says of good and of bad journals."""

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import Lock
from fleximq.journal.format.body import frameOf
from fleximq.journal.format.control_frames import (
    Checkpoint,
    LostRange,
    OffsetGap,
    Transaction,
    encodeCheckpoint,
    encodeGap,
    encodeStateRecords,
    encodeTransaction,
)
from fleximq.journal.format.frame import HEADER_BYTES, FrameKind
from fleximq.journal.format.record_columns import encodeStaged
from fleximq.values.message import Content
from fleximq.values.state_records import GroupForgotten, GroupProgress, dumped
from tests.cli.journals import BEGIN, Folder, appended, flip, message, records


class JournalCase(SynchronousTestCase):
    """A journal in a folder of its own."""

    def setUp(self) -> None:
        """Begin a journal."""
        self.path = Path(self.mktemp())
        self.folder = Folder(self.path)

    def run_(self, work: str, *more: str) -> tuple[int, list[str], str]:
        """Return the exit code, the lines on standard output, and what stands on standard error."""
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            code = main(["journal", work, str(self.path), *more])
        return code, out.getvalue().splitlines(), err.getvalue()

    def two(self) -> tuple[Path, list[int]]:
        """Write a first file with three frames of two records each."""
        return self.folder.file(
            frame for place in range(3) for frame in records(1 + 2 * place, appended("t", message(b"a"), message(b"b")))
        )


class CheckTests(JournalCase):
    """``check``."""

    def test_good(self) -> None:
        """Every file is named, with what is in it."""
        self.two()
        self.folder.file(records(7, appended("u", message(b"c"))), 7)
        code, lines, _ = self.run_("check")
        self.assertEqual(code, 0)
        self.assertEqual(lines[0], "00000000000000000000.fxj: 4 frames, 6 records, offsets 1 to 6")
        self.assertTrue(lines[1].endswith(".fxj: 2 frames, 1 record, offsets 7 to 7"), lines)
        self.assertEqual(lines[2:], ["2 files, 6 frames, 7 records: all of it is as it was written"])

    def test_json(self) -> None:
        """With ``--json`` each line is an object, of this work and of all others."""
        self.two()
        self.folder.file(records(7, appended("u", message(b"c"))), 7)
        file = {"file": "00000000000000000000.fxj", "frames": 4, "records": 6, "first": 1, "next": 7}
        total = {"files": 2, "frames": 6, "records": 7, "places_damaged": 0}
        found = [json.loads(line) for line in self.run_("check", "--json")[1]]
        self.assertEqual([found[0], found[-1]], [file, total])
        first, *topics = [json.loads(line) for line in self.run_("stat", "--json")[1]]
        self.assertEqual(
            (first["files"], [(each["topic"], each["last"]) for each in topics]), (2, [("t", 6), ("u", 7)])
        )
        self.assertEqual(json.loads(self.run_("cat", "--json")[1][0])["offset"], 1)
        self.assertEqual(self.run_("repair", "--json")[1], [])

    def test_empty(self) -> None:
        """A journal without files is as it was written, too."""
        self.assertEqual(self.run_("check")[:2], (0, ["0 files, 0 frames, 0 records: all of it is as it was written"]))

    def test_anyDamage(self) -> None:
        """A changed bit anywhere before the last frame is found, and what stands around it is counted."""
        path, places = self.two()
        self.folder.file([], 7)
        for place in (places[1], places[1] + 12, places[2] + HEADER_BYTES + 1, places[3] - 9):
            flip(path, place)
            code, lines, _ = self.run_("check")
            self.assertEqual(code, 1)
            self.assertRegex(lines[0], r"^damaged: 0{20}.fxj: \d+ bytes at \d+ are damaged: ")
            self.assertIn("4 frames, 4 records: 1 place damaged", lines[-1])
            flip(path, place)
        self.assertEqual(self.run_("check")[0], 0)

    def test_unfinished(self) -> None:
        """An end in the middle of a frame is what a crash leaves: said, and no damage."""
        path, places = self.two()
        whole = path.read_bytes()
        for size in (places[3] + 1, places[3] + HEADER_BYTES, len(whole) - 1):
            path.write_bytes(whole[:size])
            code, lines, _ = self.run_("check")
            self.assertEqual(code, 0)
            self.assertIn(f"{size - places[3]} bytes at {places[3]} are an unfinished end", lines[0])
            self.assertIn("3 frames, 4 records", lines[1])

    def test_unsynced(self) -> None:
        """Damage behind which nothing says that it was ever on disk is an unfinished end, with all that follows."""
        path, places = self.two()
        flip(path, places[2] + HEADER_BYTES)
        code, lines, _ = self.run_("check")
        self.assertEqual(code, 0)
        size = path.stat().st_size - places[2]
        self.assertIn(f"{size} bytes at {places[2]} are an unfinished end", lines[0])
        self.assertIn("2 frames, 2 records", lines[1])

    def test_unfinishedInTheMiddle(self) -> None:
        """The same is damage where another file follows."""
        path, _ = self.two()
        self.folder.file([], 7)
        path.write_bytes(path.read_bytes()[:-8])
        code, lines, _ = self.run_("check")
        self.assertEqual((code, lines[0].startswith("damaged: ")), (1, True))

    def test_gaps(self) -> None:
        """Offsets that were skipped are named, but no damage; a file that is missing in the middle is."""
        self.folder.file([*records(1, appended("t", message(b"a"))), encodeGap(OffsetGap(2, 1000), BEGIN)])
        self.folder.skip(80)
        self.folder.file([frameOf(FrameKind.LOST, LostRange(900, 8, 1001, 1003)._asdict(), 1003, BEGIN)], 1000)
        code, lines, _ = self.run_("check")
        self.assertEqual(code, 1)
        said = [line for line in lines if not line.endswith("records") and ".fxj" not in line]
        self.assertEqual([line.split(":")[0] for line in said[:-1]], ["note", "damaged", "damaged"], lines)
        self.assertIn("offsets 2 to 999 were never given", said[0])
        self.assertIn("there is no file for them", said[1])
        self.assertIn("offsets 1001 to 1002 were lost", said[2])

    def test_offsets(self) -> None:
        """Offsets that are missing without a word, or come again, are damage."""
        self.folder.file([*records(1, appended("t", message(b"a"))), *records(5, appended("t", message(b"a")))])
        self.assertIn("damaged: offsets 2 to 4 are missing", self.run_("check")[1][0])
        self.folder.file(records(5, appended("t", message(b"a"))), 5)
        self.assertIn("damaged: offset 5 comes again", " ".join(self.run_("check")[1]))


class CatTests(JournalCase):
    """``cat`` and ``stat``."""

    def cat(self, *more: str) -> list[Any]:
        """Return what it writes, read as JSON."""
        code, lines, error = self.run_("cat", *more)
        self.assertEqual((code, error), (0, ""))
        return [json.loads(line) for line in lines]

    def test_row(self) -> None:
        """All that is known of a message, its ids in the header."""
        self.folder.file(records(1, appended("jobs", message(b"sweep", id="7"))))
        self.assertEqual(
            self.cat(),
            [
                {
                    "offset": 1,
                    "time": BEGIN // 1000,
                    "topic": "jobs",
                    "publisher": 1000,
                    "name": "minimq-1000",
                    "dialect": "minimq",
                    "qos": 1,
                    "header": {"message_id": "7"},
                    "value": "sweep",
                }
            ],
        )

    def test_values(self) -> None:
        """MessagePack is JSON, text is text, and bytes that are no text are base64."""
        self.folder.file(
            records(
                1,
                appended(
                    "t",
                    message(msgpack.packb({"a": [1, None]}), Content.MESSAGEPACK),
                    message(b"", Content.MESSAGEPACK),
                    message(b"\xc1", Content.MESSAGEPACK),
                    message(b"caf\xc3\xa9", Content.BYTES),
                    message(b"\xff\x00", Content.BYTES),
                ),
            )
        )
        values = [row.get("value", row.get("base64")) for row in self.cat()]
        self.assertEqual(values, [{"a": [1, None]}, "", "wQ==", "café", "/wA="])

    def test_range(self) -> None:
        """From one offset to another, both included, in any file."""
        for first in (1, 4, 7):
            self.folder.file(
                records(first, appended("t", *(message(b"%d" % n) for n in range(first, first + 3)))), first
            )
        for words, offsets in (
            ((), range(1, 10)),
            (("--from", "3"), range(3, 10)),
            (("--to", "4"), range(1, 5)),
            (("--from", "4", "--to", "7"), range(4, 8)),
            (("--from", "10"), range(0)),
        ):
            self.assertEqual([row["offset"] for row in self.cat(*words)], list(offsets), words)

    def test_noRange(self) -> None:
        """A range that ends before it begins is refused; one of a single offset is none of those."""
        self.folder.file(records(1, appended("t", message(b"1"), message(b"2"))))
        code, lines, words = self.run_("cat", "--from", "9", "--to", "2")
        self.assertEqual((code, lines, words), (1, [], "fleximq: --to is 2, which is before --from, 9\n"))
        self.assertEqual([row["offset"] for row in self.cat("--from", "2", "--to", "2")], [2])

    def test_noPattern(self) -> None:
        """A pattern that looks as if it matched what it does not is refused."""
        self.assertRaises(SystemExit, self.run_, "cat", "--topic", "a.#.b")

    def test_topics(self) -> None:
        """Topics that match a pattern."""
        self.folder.file(
            records(1, appended("a.x", message(b"1")), appended("b", message(b"2")), appended("a/y", message(b"3")))
        )
        self.assertEqual([row["value"] for row in self.cat("--topic", "a.*")], ["1", "3"])
        self.assertEqual([row["value"] for row in self.cat("--topic", "b")], ["2"])

    def test_transaction(self) -> None:
        """What was staged appears where it was committed, with those offsets; what was not is not there."""
        staged = [
            frame
            for part in (b"1", b"2", b"never")
            for frame in encodeStaged(
                {"query": "q", "batch": 3, "part": part.decode()}, [appended("t", message(part), message(part * 2))]
            )
        ]
        first = staged[0].length
        start = self.folder.file([])[0].stat().st_size
        positions = start + start, start + start + first
        transaction = encodeTransaction(Transaction("q", 3, positions[::-1]), 1, 4, BEGIN)
        self.folder.file([*staged, transaction])
        self.assertEqual(
            [(row["offset"], row["value"]) for row in self.cat()], [(1, "2"), (2, "22"), (3, "1"), (4, "11")]
        )

    def test_largeTransaction(self) -> None:
        """A transaction may name more than a MiB of positions."""
        large = encodeTransaction(Transaction("q", 3, tuple(range(1 << 40, (1 << 40) + 600_000)), True), 1, 0, BEGIN)
        self.assertGreater(large.length, 5 << 20)
        self.folder.file([large, *records(1, appended("t", message(b"behind")))])
        self.assertEqual([row["value"] for row in self.cat()], ["behind"])
        self.assertEqual(self.run_("check")[0], 0)

    def test_stat(self) -> None:
        """The journal's id, its size, and each topic by name."""
        path, _ = self.folder.file(
            records(
                1, appended("b", message(b"12")), appended("a", message(b"3"), message(b"4"), time=BEGIN + 1_500_000)
            )
        )
        code, lines, _ = self.run_("stat")
        self.assertEqual(code, 0)
        self.assertEqual(lines[0], "journal 0123456789abcdef0123456789abcdef")
        self.assertEqual(lines[1], f"1 file, {path.stat().st_size} bytes")
        self.assertEqual(
            lines[2:],
            [
                '"a": 2 records, 2 bytes, offsets 2 to 3, 2026-01-01T00:00:01.500Z to 2026-01-01T00:00:01.500Z',
                '"b": 1 record, 2 bytes, offsets 1 to 1, 2026-01-01T00:00:00.000Z to 2026-01-01T00:00:00.000Z',
            ],
        )

    def test_groups(self) -> None:
        """What consumer groups said last: by the last checkpoint, and the notes behind it."""
        early = [encodeStateRecords([GroupProgress("old", 1, BEGIN), GroupProgress("gone", 1, BEGIN)], 1, BEGIN)]
        known = {
            "groups": dumped([GroupProgress("a", 5, BEGIN), GroupProgress("b", 6, BEGIN), GroupProgress("c", 7, BEGIN)])
        }
        notes = encodeStateRecords([GroupProgress("b", 8, BEGIN + 1_500_000, 3), GroupForgotten("c")], 1, BEGIN)
        self.folder.file(early)
        self.assertEqual(len(self.run_("stat")[1]), 4)
        self.folder.file([*early, encodeCheckpoint(Checkpoint(0, False, known), 1, BEGIN), notes])
        self.folder.file([encodeStateRecords([GroupProgress('d"', 9, BEGIN)], 1, BEGIN)])
        self.assertEqual(
            self.run_("stat")[1][2:],
            [
                'consumer group "a": next offset 5, as it said at 2026-01-01T00:00:00.000Z',
                'consumer group "b": next offset 8, as it said at 2026-01-01T00:00:01.500Z, 3 records lost to it',
                'consumer group "d\\"": next offset 9, as it said at 2026-01-01T00:00:00.000Z',
            ],
        )

    def test_reads(self) -> None:
        """Neither changes, makes or locks a file."""
        self.two()
        before = {each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in self.path.iterdir()}
        for work in ("check", "stat", "cat"):
            self.run_(work)
        self.assertEqual(
            {each.name: (each.read_bytes(), each.stat().st_mtime_ns) for each in self.path.iterdir()}, before
        )


class RepairTests(JournalCase):
    """``repair``."""

    def setUp(self) -> None:
        """A journal whose last frame is not finished, as after a crash."""
        super().setUp()
        self.file, self.places = self.two()
        self.file.write_bytes(self.file.read_bytes()[:-8])

    def content(self) -> dict[str, bytes]:
        """Return all files but indexes and the lock."""
        return {each.name: each.read_bytes() for each in self.path.iterdir() if each.suffix not in (".idx", "")}

    def test_says(self) -> None:
        """Without --yes it says what it would do, and changes nothing."""
        before = self.content()
        size, end = len(before[self.file.name]), self.places[3]
        code, lines, _ = self.run_("repair")
        self.assertEqual(code, 0)
        self.assertEqual(
            lines,
            [
                f"would make {end:020d}.torn, a copy of what stands there",
                f"would cut {self.file.name} from {size} bytes to {end}",
                "nothing was changed; --yes does it",
            ],
        )
        self.assertEqual(self.content(), before)

    def test_does(self) -> None:
        """With --yes it does it; then nothing is left to do, and nothing is wrong."""
        before = self.content()[self.file.name]
        code, lines, _ = self.run_("repair", "--yes")
        self.assertEqual((code, lines[-1]), (0, "done"))
        end = self.places[3]
        self.assertEqual(self.content(), {self.file.name: before[:end], f"{end:020d}.torn": before[end:]})
        self.assertEqual(self.run_("repair")[1], ["there is nothing to cut; journal check reads complete files, too"])
        self.assertEqual(self.run_("check")[0], 0)

    def test_inUse(self) -> None:
        """A journal that a broker has is left alone."""
        lock = Lock(Files(), str(self.path))
        self.addCleanup(lock.release)
        for words in ((), ("--yes",)):
            code, lines, error = self.run_("repair", *words)
            self.assertEqual((code, lines), (1, []))
            self.assertIn("in use by another broker", error)


class FolderTests(JournalCase):
    """Folders that are none of ours."""

    def test_none(self) -> None:
        """A folder that is not there, or holds no journal, is one sentence and 1."""
        for path, reason in ((self.path / "x", "does not exist"), (self.path.parent, "is not a journal")):
            self.path = path
            for work in ("check", "stat", "cat", "repair"):
                self.assertEqual(self.run_(work), (1, [], f"fleximq: {path} {reason}\n"))

    def test_newer(self) -> None:
        """So is one of a newer version."""
        (self.path / "identity").write_text("x")
        code, lines, error = self.run_("check")
        self.assertEqual((code, lines, error.count("\n")), (1, [], 1))

    def test_words(self) -> None:
        """Words that cannot be understood are one sentence."""
        for words in ([], ["look"], ["cat"], ["cat", "x", "--from", "0"], ["cat", "x", "--from", "soon"]):
            error = self.assertRaises(SystemExit, main, ["journal", *words])
            self.assertTrue(str(error).startswith("fleximq journal"), error)

    def test_closedPipe(self) -> None:
        """Whoever reads the output may stop in the middle."""
        self.folder.file(records(1, *(appended("t", *(message(b"x" * 100) for _ in range(5000))) for _ in range(4))))
        source = str(Path(__file__).parents[2])
        with subprocess.Popen(
            [sys.executable, "-m", "fleximq.cli", "journal", "cat", str(self.path.absolute())],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": source},
        ) as process:
            assert process.stdout is not None and process.stderr is not None
            process.stdout.readline()
            process.stdout.close()
            self.assertEqual((process.wait(300), process.stderr.read()), (141, b""))
