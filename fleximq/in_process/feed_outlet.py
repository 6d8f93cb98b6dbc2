"""Passes messages from the journal to one client in the process (:mod:`fleximq.broker.replay.feed`)."""

from collections.abc import Callable, Sequence
from typing import Any

from twisted.internet.interfaces import IReactorTime
from zope.interface import implementer

from fleximq.broker.replay.feed import IOutlet
from fleximq.broker.slices import Slices
from fleximq.dialects.fleximq.forms import REPLAY_FORMS, records
from fleximq.errors import BrokerError
from fleximq.in_process.peer import InProcessPeer
from fleximq.interfaces import ISubscriber
from fleximq.limits import MEBIBYTE
from fleximq.values.records import StoredBatch


@implementer(IOutlet)
class FeedOutlet:
    """Receives a feed for a client in the process; the feed pauses while half of ``prefetch`` or more is unread.

    :param offsets: whether the messages get their offsets.
    """

    chunkBytes = MEBIBYTE
    slices: Slices | None = None

    def __init__(self, peer: InProcessPeer, clock: IReactorTime, offsets: bool) -> None:
        self.subscriber: ISubscriber = peer
        self._peer = peer
        self.form = REPLAY_FORMS[offsets]
        self._clock = clock
        self._offsets = offsets

    @property
    def full(self) -> bool:
        """Whether the feed should pause until :meth:`whenRelieved` calls."""
        return self._peer.inbox.full

    def whenRelieved(self, call: Callable[[], None]) -> None:
        """Call in a later turn, once the client has read enough."""
        self._peer.reliefs.append(lambda: self.soon(call))

    def soon(self, call: Callable[[], None]) -> None:
        """Call in the next reactor turn."""
        self._clock.callLater(0, call)

    def send(self, rendered: Any) -> None:
        """Deliver a rendered run."""
        self._peer.take(rendered)

    def sendBatches(self, batches: Sequence[StoredBatch]) -> None:
        """Deliver records of the journal."""
        self.send(records(batches, self._offsets))

    def failed(self, error: BrokerError, name: str) -> None:
        """End the subscription of this name with an error."""
        self._peer.inbox.endTopic(name, error)

    def close(self) -> None:
        """Do no more: this outlet holds no resources."""
