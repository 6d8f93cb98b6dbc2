"""The forms of readers by HTTP: Server-Sent Events, or a JSON object on each line.

In HTTP/1.1 each run is one chunk, so that a client can tell the end of a stream from a lost connection. A run is
rendered once for all readers with the same form, except for those that read so many messages: they get their rows.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from zope.interface import implementer

from fleximq.broker.envelope import Envelope
from fleximq.broker.replay.feed import DeferredForm
from fleximq.dialects.http.operations.message_rows import Alike, recordRows, rows
from fleximq.interfaces import IForm
from fleximq.values.header_pairs import runWithSender
from fleximq.values.records import StoredBatch


def chunk(content: bytes) -> bytes:
    """Return bytes as a chunk of HTTP; no bytes are the last one."""
    return b"%x\r\n%b\r\n" % (len(content), content)


def liveRows(envelope: Envelope, body: Any, count: int, isEvent: bool) -> list[bytes]:
    """Return the rows of a run."""
    if type(body) is StoredBatch:
        hasOffsets = envelope.offset > 0
        return recordRows(body.placed(envelope.offset, envelope.time) if hasOffsets else body, hasOffsets, isEvent)
    run = envelope.source.run(body)
    if envelope.publisher.sender:
        run = runWithSender(run, envelope.publisher.sender)
    topic, offset, time = envelope.topic.name, envelope.offset, envelope.time if envelope.offset else 0
    payloads = list(run.payloads)
    contents = [run.contents] * count if isinstance(run.contents, int) else run.contents
    if isinstance(run.headers, bytes):
        return rows(Alike(topic, run.headers, time), contents, payloads, offset, isEvent)
    found: list[bytes] = []
    for place, header in enumerate(run.headers):
        at = slice(place, place + 1)
        found += rows(Alike(topic, header, time), contents[at], payloads[at], offset and offset + place, isEvent)
    return found


@implementer(IForm)
class StreamForm:
    """Runs as bytes."""

    def __init__(self, isEvent: bool, isChunked: bool) -> None:
        self._isEvent = isEvent
        self._isChunked = isChunked

    def render(self, envelope: Envelope, body: Any, count: int) -> bytes:
        """Return the run."""
        return self._framed(liveRows(envelope, body, count, self._isEvent))

    def records(self, batches: Sequence[StoredBatch], hasOffsets: bool) -> bytes:
        """Return records."""
        return self._framed([row for batch in batches for row in recordRows(batch, hasOffsets, self._isEvent)])

    def _framed(self, found: list[bytes]) -> bytes:
        content = b"".join(found)
        return chunk(content) if self._isChunked else content


@implementer(IForm)
class RowForm:
    """Runs as lists of rows."""

    def __init__(self, isEvent: bool) -> None:
        self._isEvent = isEvent

    def render(self, envelope: Envelope, body: Any, count: int) -> list[bytes]:
        """Return the rows of a run."""
        return liveRows(envelope, body, count, self._isEvent)

    def records(self, batches: Sequence[StoredBatch], hasOffsets: bool) -> list[bytes]:
        """Return the rows of records."""
        return [row for batch in batches for row in recordRows(batch, hasOffsets, self._isEvent)]


class FormKind(NamedTuple):
    """What a reader gets: events or lines, in chunks or not; ``isCut``: rows, since it reads so many."""

    isEvent: bool
    isChunked: bool
    isCut: bool


_BOOLEANS = False, True
_FORMS: dict[FormKind, StreamForm | RowForm] = {
    FormKind(isEvent, isChunked, False): StreamForm(isEvent, isChunked)
    for isEvent in _BOOLEANS
    for isChunked in _BOOLEANS
}
_FORMS |= {FormKind(isEvent, isChunked, True): RowForm(isEvent) for isEvent in _BOOLEANS for isChunked in _BOOLEANS}
_DEFERRED = {kind: DeferredForm(form) for kind, form in _FORMS.items()}


def formsOf(kind: FormKind) -> tuple[DeferredForm, StreamForm | RowForm]:
    """Return the form of live runs, one object for all readers of the kind, and that of records."""
    return _DEFERRED[kind], _FORMS[kind]
