"""The input of a FlexiMQ session of unknown layout: a transcoder with a scanner after it."""

from collections.abc import Iterator

from fleximq.compiled import choice
from fleximq.wire import fleximq_layout_b, fleximq_scanner
from fleximq.wire.fleximq_layout_b import Layout, LayoutTranscoder
from fleximq.wire.fleximq_scanner import FlexiRun, Span


class TranscodedScanner:
    """Scans a stream of any layout as a session does; by the reference, unless ``compiled``."""

    def __init__(self, limit: int, compiled: bool = False) -> None:
        turn = choice.fromLayoutB if compiled else fleximq_layout_b.fromLayoutB
        self.transcoder = LayoutTranscoder(limit, turn)
        self.scanner = (choice.FlexiScanner if compiled else fleximq_scanner.FlexiScanner)(limit)

    @property
    def layout(self) -> Layout | None:
        """The layout, once it is known."""
        return self.transcoder.layout

    @property
    def buffered(self) -> int:
        """The bytes that either of them holds."""
        return self.transcoder.buffered + self.scanner.buffered

    def spans(self, data: bytes) -> Iterator[Span]:
        """Yield spans in layout A."""
        for frames in self.transcoder.feed(data):
            yield from self.scanner.spans(frames)

    def feed(self, data: bytes) -> Iterator[FlexiRun]:
        """Yield runs in layout A."""
        for envelope, source, start, end, count in self.spans(data):
            yield envelope, source[start:end], count
