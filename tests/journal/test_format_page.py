"""docs/reference/journal-format.rst says what the broker writes."""

import re
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.format.control_frames import NOTE_NAMES, NOTES
from fleximq.journal.format.frame import FrameKind
from fleximq.journal.format.record_columns import encodeRecords
from fleximq.values.records import DIALECTS
from tests.journal import minimal_decoder
from tests.journal.frames import TIME, appended, written
from tests.pages import tableRows

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "journal-format.rst").read_text()
#: The bytes of the types of fields.
SIZES = {"4 bytes": 4, "u8": 1, "u16": 2, "u32": 4, "u64": 8, "i64": 8}


def example() -> bytes:
    """Return the frame of the page's example."""
    [frame] = encodeRecords(
        [
            appended(b"\xa2hi", b"\x01"),
            appended(
                b"yes", topic="sport", publisher=1001, name="blipmq-1001", dialect=2, contents=0x101, time=TIME + 5
            ),
        ],
        42,
    )
    return written(frame, 4096, 0x11223344, synced=True)


class PageTests(SynchronousTestCase):
    """The page against the code."""

    def test_example(self) -> None:
        """The bytes of the example are those that the broker writes."""
        lines = re.findall(r"^ +(\d+)  ((?:[0-9a-f]{2} ?){16})", PAGE, re.MULTILINE)
        self.assertEqual([int(place) for place, _ in lines], list(range(0, len(example()), 16)))
        self.assertEqual(bytes.fromhex("".join(line for _, line in lines)), example())

    def test_exampleMeaning(self) -> None:
        """They mean what the page says."""
        found = minimal_decoder.decode(example())
        self.assertEqual(
            [(each["offset"], each["topic"], each["publisherName"], each["payload"]) for each in found["body"]],
            [
                (42, "news", "fleximq-1000", "a26869"),
                (43, "news", "fleximq-1000", "01"),
                (44, "sport", "blipmq-1001", b"yes".hex()),
            ],
        )

    def test_header(self) -> None:
        """The fields of the header follow each other without a gap, up to 64 bytes."""
        fields = [(int(row[0]), SIZES[row[1]]) for row in tableRows(PAGE) if row[1:2] and row[1] in SIZES]
        self.assertEqual(
            [at for at, _ in fields], [sum(size for _, size in fields[:place]) for place in range(len(fields))]
        )
        self.assertEqual(sum(size for _, size in fields), 64)

    def test_kinds(self) -> None:
        """Every kind of frame and of note has its number and its name."""
        named = {(row[0], row[1]) for row in tableRows(PAGE) if len(row) > 1}
        self.assertLessEqual({(str(int(kind)), kind.name) for kind in FrameKind}, named)
        self.assertLessEqual({(str(code), kind) for code, kind in enumerate(NOTE_NAMES)}, named)

    def test_noteValues(self) -> None:
        """Every note has the values of the page."""
        values = {row[1]: row[2] for row in tableRows(PAGE) if len(row) == 4}
        for name, (kind, _) in zip(NOTE_NAMES, NOTES, strict=True):
            self.assertEqual(values[name], ", ".join(kind._fields))

    def test_dialects(self) -> None:
        """Every dialect has its code."""
        words = PAGE.lower()
        for name, code in DIALECTS.items():
            self.assertIn(f"{code} {'the broker itself' if name == 'broker' else name}", words)
