"""The interfaces through which the rooms meet, kept to the few methods that are really called."""

from collections.abc import Callable, Sequence
from typing import Any

from zope.interface import Attribute, Interface

from fleximq.message import Message


class ISource(Interface):
    """Knows how to take the messages out of a run's body; one per envelope, made by the publisher's dialect."""

    def messages(body: Any) -> Sequence[Message]:
        """Return the messages of a run, in order. ``body`` is what the dialect gave to ``Broker.publish``."""

    def pick(body: Any, places: Sequence[int]) -> Any:
        """Return a body that holds only the messages at these places (ascending, at least one)."""


class IForm(Interface):
    """The shape in which a group of subscribers takes its deliveries. A run is rendered once per form."""

    def render(envelope: Any, body: Any, count: int) -> Any:
        """Return what each subscriber of this form is handed for this run.

        :param envelope: the :class:`fleximq.broker.values.Envelope` that all messages of the run share.
        :param body: the run as its publisher's dialect gave it.
        :param count: the number of messages in it, at least 1.
        """


class ISubscriber(Interface):
    """Somebody who takes the publications of a topic: a connection or a queue."""

    form = Attribute("""The :class:`IForm` in which it takes them; subscribers are grouped by its identity.""")

    def deliver(rendered: Any, count: int) -> None:
        """Take one run in the subscriber's form. Never raises, never waits, never calls the broker."""


class IPeer(Interface):
    """A connection that takes direct messages: REQ, REP, NOTIF and BCAST (the FlexiMQ dialect)."""

    def forward(message: Any) -> None:
        """Send on a message that another peer's dialect made; the broker does not look inside."""

    def requestFailed(id: str, path: str, status: int, words: str) -> None:
        """Say that this peer's request ``id`` to ``path`` will not be answered (502, 504)."""

    def requestDone() -> None:
        """Say that one of this peer's requests was answered or given up, after its answer was sent."""


class IBrokerObserver(Interface):
    """Is told what happens in the broker: metrics, audit, presence. What it raises is logged and hurts nobody."""

    def clientJoined(client: Any) -> None:
        """A :class:`fleximq.broker.values.Client` was given its id."""

    def clientLeft(client: Any, reason: str) -> None:
        """A client is gone; ``reason`` is a short constant phrase, fit for counting."""

    def topicCreated(name: str) -> None:
        """A topic came into being with its first use."""

    def counted(event: str, number: int) -> None:
        """Something worth counting happened ``number`` times, e.g. ``"dropped: queue full"``."""


class IJournal(Interface):
    """What keeps durable publications. The volatile one lives in memory; the one on disk takes its place."""

    def append(envelope: Any, body: Any, count: int, committed: Callable[[str | None], None]) -> None:
        """Keep a run and call ``committed(None)`` when it is safe, or ``committed(reason)`` when it is not.

        The call may come before this one returns. Runs are committed in the order in which they were appended.
        """

    def whenSafe(call: Callable[[], None]) -> None:
        """Call when everything appended so far has been committed or refused; at once if nothing is pending."""

    def acknowledged(queue: str, tags: Sequence[int]) -> None:
        """Note that these messages of a queue are done with and need not be kept for it."""
