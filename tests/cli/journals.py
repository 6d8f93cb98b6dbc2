"""Small journals, written by hand with the codec alone."""

from collections.abc import Iterable
from pathlib import Path

from fleximq.journal.files.file_system import Files
from fleximq.journal.files.folder_files import identify
from fleximq.journal.format.column_builder import AppendedRun
from fleximq.journal.format.control_frames import SegmentStart, encodeSegment
from fleximq.journal.format.frame import Frame, seal
from fleximq.journal.format.record_columns import encodeRecords
from fleximq.values.message import Content, Message
from fleximq.values.records import DIALECTS, runOf

#: 2026-01-01, in microseconds.
BEGIN = 1_767_225_600_000_000
ID = "0123456789abcdef0123456789abcdef"


def message(payload: bytes, content: Content = Content.TEXT, id: str | None = None) -> Message:
    """Return a message."""
    return Message(payload, content, message_id=id)


def appended(topic: str, *messages: Message, dialect: str = "minimq", time: int = BEGIN) -> AppendedRun:
    """Return a run of messages of client 1000."""
    return AppendedRun(topic, 1000, f"{dialect}-1000", DIALECTS[dialect], time, runOf(messages))


def records(offset: int, *runs: AppendedRun) -> list[Frame]:
    """Return the frames with these runs."""
    return encodeRecords(runs, offset)


class Folder:
    """A journal that is written file by file."""

    def __init__(self, path: Path) -> None:
        path.mkdir()
        self.path = path
        identify(Files(), str(path), lambda: ID)
        self._end = 0

    def file(self, frames: Iterable[Frame], offset: int = 1) -> tuple[Path, list[int]]:
        """Write the next file; return its path, and where in it each frame begins, its own first one too."""
        base = self._end
        previous, places, content = 0, [], b""
        for frame in (encodeSegment(SegmentStart(ID, BEGIN), offset), *frames):
            places.append(len(content))
            buffers, previous = seal(frame, base + 7, base + len(content), previous)
            content += b"".join(buffers)
        self._end += len(content)
        path = self.path / f"{base:020d}.fxj"
        path.write_bytes(content)
        return path, places

    def skip(self, size: int) -> None:
        """Let the next file begin later."""
        self._end += size


def flip(path: Path, place: int) -> None:
    """Change a bit of a file."""
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)
