"""``fleximq journal`` over frames that were written wrong: their check sums are right."""

import io
import json
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
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
from fleximq.journal.format.frame import HEADER_BYTES, FrameKind, reseal
from fleximq.journal.format.record_columns import encodeStaged
from fleximq.values.state_records import GroupProgress, dumped
from tests.cli.journals import BEGIN, Folder, appended, message, records
from tests.nightly import repetitions

#: The place of a frame's kind, and the first of its other fields whose change its reader could accept.
_KIND, _COUNT = 6, 20
#: Every this many bytes are changed, each in a run of its own.
STEP = repetitions(19, 1)


class WrongFrameTests(SynchronousTestCase):
    """One changed byte in a frame of each kind."""

    def setUp(self) -> None:
        """Write a file with all kinds."""
        self.path = Path(self.mktemp())
        folder = Folder(self.path)
        group = GroupProgress("g", 1, BEGIN)
        runs = records(1, appended("t", message(b"a", id="7"), message(b"b")), appended("u", message(b"c")))
        self.file, places = folder.file(runs)
        start = self.file.stat().st_size
        (staged,) = encodeStaged({"query": "q"}, [appended("s", message(b"a"))])
        self.file, places = folder.file(
            [
                staged,
                encodeTransaction(Transaction("q", 3, (start + places[1],), False), 4, 1, BEGIN),
                encodeStateRecords([group], 5, BEGIN),
                encodeCheckpoint(Checkpoint(0, False, {"groups": dumped([group])}), 5, BEGIN),
                encodeGap(OffsetGap(5, 1000), BEGIN),
                frameOf(FrameKind.LOST, LostRange(900, 8, 1000, 1003)._asdict(), 1003, BEGIN),
                *records(1003, appended("t", message(b"a", id="7"), message(b"b")), appended("u", message(b"c"))),
            ],
            4,
        )
        content = self.file.read_bytes()
        self.frames = [content[place:end] for place, end in zip(places, [*places[1:], len(content)], strict=True)]

    def changed(self, flips: int) -> Iterator[tuple[int, int]]:
        """Change a byte each time, and yield the number of its frame and its place in it."""
        for number, frame in enumerate(self.frames):
            for place in (_KIND, *range(_COUNT, len(frame), STEP)):
                wrong = bytearray(frame)
                wrong[place] ^= flips
                previous, content = 0, b""
                for each in (*self.frames[:number], bytes(wrong), *self.frames[number + 1 :]):
                    sealed, previous = reseal(each, previous)
                    content += sealed
                self.file.write_bytes(content)
                yield number, place

    def code(self, command: str) -> int:
        """Return the exit code of a command."""
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            return main(["journal", command, str(self.path)])

    def test_commands(self) -> None:
        """Each command ends with 0 or 1; what ``stat`` or ``cat`` skip is damage that ``check`` names."""
        for flips in (0xFF, 0x01):
            for where in self.changed(flips):
                codes = {each: self.code(each) for each in ("check", "stat", "cat", "repair")}
                self.assertIn(codes.pop("repair"), (0, 1))
                self.assertIn(tuple(codes.values()), ((0, 0, 0), (1, 0, 0), (1, 1, 1)), where)

    def test_sentences(self) -> None:
        """``cat`` writes what is before and after the frame, and names it."""
        next(each for each in self.changed(0xFF) if each[0] == 2 and each[1] > HEADER_BYTES)
        out, err = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(err):
            self.assertEqual(main(["journal", "cat", str(self.path)]), 1)
        self.assertEqual(
            [json.loads(line)["offset"] for line in out.getvalue().splitlines()], [1, 2, 3, 1003, 1004, 1005]
        )
        self.assertRegex(
            err.getvalue(),
            r"^fleximq: skipped, see fleximq journal check: .*fxj: \d+ bytes at \d+ are damaged: "
            r"the check sum is right, but .*\n$",
        )
