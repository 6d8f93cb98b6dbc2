"""A journal on a real folder, written as a broker writes it, one commit when a test says so."""

from typing import Any

from fleximq.journal.files.file_system import Files
from fleximq.values.message import Content, Message
from fleximq.values.records import contentOf
from tests.journal.at_once import JournalAtOnce, published

#: What the first record's time is, unless a test says otherwise.
TIME = 1_700_000_000_000_000


class Written:
    """``rows`` is what was committed, by offset: topic, header and payload. ``time`` is the broker's clock."""

    def __init__(self, folder: str, *, segmentBytes: int = 1 << 20, files: Files | None = None) -> None:
        self.folder = folder
        self.time = TIME
        self.rows: dict[int, tuple[str, bytes, bytes]] = {}
        self.journal = JournalAtOnce(files or Files(), folder, now=lambda: self.time, segmentBytes=segmentBytes)
        self.journal.open()
        self.journal.begin()

    @property
    def id(self) -> str:
        """The journal's own id."""
        return self.journal.id

    @property
    def next(self) -> int:
        """The offset of the next record."""
        return self.journal.segments.nextOffset

    def publish(
        self,
        topic: str,
        *payloads: bytes,
        header: bytes = b"",
        publisher: int = 7,
        content: Content = Content.MESSAGEPACK,
        **more: Any,
    ) -> None:
        """Append one run; it is committed by the next :meth:`commit`."""

        def committed(offset: int, reason: str | None) -> None:
            for place, payload in enumerate(payloads):
                self.rows[offset + place] = topic, header, payload

        code = contentOf(Message(b"", content))
        self.journal.append(*published(payloads, topic, publisher, header=header, content=code, **more), committed)

    def commit(self) -> None:
        """Write all that waits, as few frames as it needs."""
        self.journal.worker.drain()

    def kept(self, topic: str, *payloads: bytes, **more: Any) -> None:
        """Publish and commit one run."""
        self.publish(topic, *payloads, **more)
        self.commit()

    def stage(self, query: str, batch: int, part: str, topic: str, *payloads: bytes) -> str:
        """Stage records and return their token."""
        tokens: list[str | None] = []
        self.journal.stage(
            query, batch, part, [published(list(payloads), topic)], lambda token, _: tokens.append(token)
        )
        self.commit()
        [token] = tokens
        assert token is not None
        return token

    def publishStaged(self, query: str, batch: int, *tokens: str) -> int:
        """Commit a transaction and return its first offset."""
        offsets: list[int] = []
        self.journal.commitStaged(query, batch, list(tokens), lambda offset, reason: offsets.append(offset))
        self.commit()
        return offsets[0]

    def close(self) -> None:
        """End in order."""
        self.journal.close()
