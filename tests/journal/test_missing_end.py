"""A last segment that is gone, or shorter than it was, though the file ``end`` knows how far the journal went."""

import os
from pathlib import Path

from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_survey import Finding, FolderSurvey
from fleximq.journal.format.control_frames import LostRange
from fleximq.journal.recovery.recovery import offsetAfterGap
from tests.journal.journal_case import JournalCase


class MissingEndCase(JournalCase):
    """Three segments of two, two and one record; ``position`` is where the last one begins, ``end`` where it ends."""

    def setUp(self) -> None:
        super().setUp()
        self.kept(b"ab")
        self.roll()
        self.kept(b"d")
        self.roll()
        self.position, self.end = self.journal.segments.all[-1].base, self.journal.segments.end
        self.next = self.journal.end

    def roll(self) -> None:
        """Begin a new segment with one record."""
        self.journal._rollAt = 0
        self.kept(b"-")

    def last(self) -> Path:
        """Return the last file."""
        return max(Path(self.folder).glob("*.fxj"))

    def damaged(self) -> list[str]:
        """Return what a check says."""
        found = FolderSurvey(Files(), self.folder).check()
        return [each.sentence for each in found if isinstance(each, Finding) and each.damaged]

    def assertSaid(self, first: int, position: int) -> None:
        """See that a start says what is lost, goes on behind it, and the starts after it know it too."""
        length = self.end - position
        words = f"{length} bytes at position {position} are damaged or missing, and with them the offsets {first} to "
        for clean in (False, True):
            self.assertEqual(
                self.damaged(),
                [f"positions {position} to {self.end - 1}: they were committed, as the file 'end' says, and are gone"],
            )
            journal = self.open()
            found = journal.recovered
            self.assertEqual(found.lost, [f"{words}{self.next - 1}"])
            self.assertEqual(
                (found.end, found.lastOffset, found.nextOffset), (self.end, self.next, offsetAfterGap(self.next))
            )
            if clean:
                journal.begin()
            self.crash(journal) if clean else journal.close()
        self.begin()
        self.told.clear()
        self.kept(b"z")
        [(_, offset, reason)] = self.told
        self.assertEqual((offset, reason), (2 * offsetAfterGap(self.next), None))
        self.assertEqual(self.journal.health()["lost"], [f"{words}{self.next - 1}"])
        self.assertEqual(self.journal.segments.lost, [LostRange(position, length, first, self.next)])
        self.assertEqual([payload for _, _, payload in self.records()], [b"a", b"b", b"-", b"d", b"z"])
        self.assertEqual(self.damaged(), [f"positions {position} to {self.end - 1}: there is no file for them"])


class MissingEndTests(MissingEndCase):
    """What is said of it, and where it goes on."""

    def test_gone(self) -> None:
        """The file is not there."""
        self.crash()
        self.last().unlink()
        self.assertSaid(5, self.position)

    def test_empty(self) -> None:
        """The file has no bytes."""
        self.crash()
        os.truncate(self.last(), 0)
        self.assertSaid(5, self.position)

    def test_cleanlyStopped(self) -> None:
        """So it is behind a clean stop."""
        self.journal.close()
        self.end = self.journal.segments.end
        self.last().unlink()
        self.assertSaid(5, self.position)

    def test_shorter(self) -> None:
        """The file was cut between two frames, or in one of them; then what is left of that is kept aside too."""
        self.kept(b"e")
        at = self.journal.segments.end
        self.kept(b"f")
        self.crash()
        for size, torn in ((at - self.position, 0), (at - self.position - 1, 1)):
            os.truncate(self.last(), size)
            journal = self.open()
            found = journal.recovered
            self.assertEqual((len(found.lost), len(found.torn)), (1, torn))
            self.assertIn(f"the offsets {7 - torn} to 7", found.lost[0])
            self.assertEqual(found.nextOffset, offsetAfterGap(8))
            journal.close()

    def test_all(self) -> None:
        """No file is left at all: that is said, and numbering goes on behind all there ever was."""
        self.crash()
        for path in Path(self.folder).glob("*.fxj"):
            path.unlink()
        self.assertEqual(len(self.damaged()), 1)
        found = self.begin()
        self.assertEqual(
            found.lost, [f"{self.end} bytes at position 0 are damaged or missing, and with them the offsets 1 to 5"]
        )
        self.kept(b"z")
        self.assertEqual(self.told[-1][1:], (offsetAfterGap(6), None))
        self.crash()
        self.assertEqual(self.open().recovered.records, 1)

    def test_noEnd(self) -> None:
        """Without that file, or with one that says nothing, a last file that is gone leaves no trace."""
        self.crash()
        self.last().unlink()
        end = Path(self.folder) / "end"
        for content in (b"", b"x" * 64, bytes(64), None):
            if content is None:
                end.unlink()
            else:
                end.write_bytes(content)
            self.assertEqual(self.damaged(), [])
            journal = self.open()
            self.assertEqual(journal.recovered.lost, [])
            journal.close()

    def test_behind(self) -> None:
        """An end that a crash kept from being said is no loss, nor is one that a running broker goes beyond."""
        end = Path(self.folder) / "end"
        content = end.read_bytes()
        self.kept(b"e")
        self.assertEqual(self.damaged(), [])
        self.crash()
        end.write_bytes(content)
        self.assertEqual(self.damaged(), [])
        self.assertEqual(self.begin().lost, [])
