"""Reads the messages of one durable queue from the journal.

A queue that several topics fill needs the topic of each message, also of those of dialects whose messages have no head.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from fleximq.interfaces import IJournal
from fleximq.values.message import Message
from fleximq.values.records import StoredBatch

#: Bytes read at once.
READ_BYTES = 1 << 20


class ReadQueue(Protocol):
    """The queue that messages are read for."""

    #: Whether each of its messages needs a head.
    needsHeads: bool


def readMessages(
    journal: IJournal, queue: ReadQueue, offsets: Sequence[int], call: Callable[[Sequence[Message]], None]
) -> None:
    """Read messages with these ascending offsets, up to about :data:`READ_BYTES`, at least one; see
    :meth:`fleximq.interfaces.IJournalRead.fetch`.
    """

    def found(batches: Sequence[StoredBatch], number: int) -> None:
        call([message for batch in batches for message in batch.messagesWithHeads()])

    if queue.needsHeads:
        journal.fetchRecords(offsets, READ_BYTES, found)
    else:
        journal.fetch(offsets, READ_BYTES, call)
