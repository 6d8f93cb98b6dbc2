"""What the process in which queries are planned keeps of journals from one query to the next."""

from collections.abc import Iterator
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.journal.files import frame_scan
from fleximq.journal.files.frame_scan import CompleteFrame, DamagedRange, Window
from tests.pipeline.installed import missing as skip
from tests.pipeline.written import Written

if not skip:
    from fleximq.pipeline.files import segment_lookup
    from fleximq.pipeline.reader import batch_reader
    from fleximq.pipeline.reader.batch_reader import BatchReader
    from fleximq.pipeline.reader.source_options import SourceOptions


class PlanningTests(SynchronousTestCase):
    """One query after the other over the same folder."""

    if skip:
        skip = skip

    def setUp(self) -> None:
        """A journal with one frame."""
        self.folder = str(Path(self.mktemp()).absolute())
        self.written = Written(self.folder)
        self.written.kept("a", b"1")

    def read(self, folder: str = "") -> list[int]:
        """Plan a query anew, and return the offsets that it reads."""
        options = SourceOptions.of({"path": folder or self.folder})
        reader = BatchReader(options, ["offset"])
        return [
            offset
            for partition in reader.partitions()
            for batch in reader.read(partition)
            for offset in batch.column(0).to_pylist()
        ]

    def test_onlyOnce(self) -> None:
        """Frames that were looked at for one query are not looked at for the next."""
        looked: list[int] = []

        def framesOf(
            window: Window, segment: int | None, start: int, atHead: bool
        ) -> Iterator[CompleteFrame | DamagedRange]:
            looked.append(start)
            return frame_scan.framesOf(window, segment, start, atHead)

        self.patch(segment_lookup, "framesOf", framesOf)
        self.assertEqual([self.read(), self.read()], [[1], [1]])
        self.assertEqual(looked, [0])
        self.written.kept("a", b"2")
        self.read()
        self.assertEqual(len(looked), 2)
        self.assertGreater(looked[1], 0)

    def test_grows(self) -> None:
        """What came meanwhile is read."""
        self.assertEqual(self.read(), [1])
        self.written.kept("a", b"2", b"3")
        self.assertEqual(self.read(), [1, 2, 3])

    def test_another(self) -> None:
        """Where another journal stands in the folder now, it is that one that is read."""
        self.read()
        self.written.journal.close()
        Path(self.folder).rename(f"{self.folder}-before")
        other = Written(self.folder)
        other.kept("b", b"x", b"y")
        self.assertEqual(self.read(), [1, 2])
        self.assertEqual(self.read(f"{self.folder}-before"), [1])

    def test_few(self) -> None:
        """Of the paths that were asked for longest ago nothing is kept."""
        self.patch(batch_reader, "_known", {})
        self.patch(batch_reader, "_MAX_KNOWN", 2)
        for number in range(3):
            folder = f"{self.folder}{number}"
            Written(folder).kept("a", b"1")
            self.read(folder)
        self.read(f"{self.folder}1")
        self.assertEqual([paths[0][-1] for paths, _ in batch_reader._known], ["2", "1"])
