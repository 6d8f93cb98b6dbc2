"""What can go wrong for a client. Settings that make no sense are :class:`fleximq.errors.SettingError`.

What the broker refuses in the BlipMQ dialect.

What the broker refuses in the MiniMQ dialect.
"""

from typing import Any

from fleximq.status import Status


class ClientError(Exception):
    """The base of all errors of the client library."""


class ConnectionLost(ClientError):
    """There is no connection: it could not be made, or it ended. What was under way may or may not have arrived.

    With :attr:`~fleximq.client.settings.State.AWAY`, ``missing`` has the topics and patterns of subscriptions that miss
    what is published until the client has joined again: those that did not begin in the past.
    """

    missing: tuple[str, ...] = ()


class Untrusted(ConnectionLost):
    """There is no connection, for one side does not trust the other's certificate: trying again changes nothing."""


class Overrun(ClientError):
    """A subscription was ended, because far more came than was taken. What came before can still be taken."""


class BufferFull(ClientError):
    """The broker is away, and no more can be kept for it; what was to be sent was not kept."""


class Answered(ClientError):
    """The broker, or whoever was asked, answered with a status of 400 or more.

    ``status`` is the number (FlexiMQ document 5.1), ``words`` what was said with it, ``path`` the path or topic
    concerned, "" if none was named, ``payload`` the answer's payload as it came.
    """

    def __init__(self, status: int, words: str, path: str = "", payload: bytes = b"") -> None:
        super().__init__(f"{_titled(status)}: {words}" if words else _titled(status))
        self.status = status
        self.words = words
        self.path = path
        self.payload = payload

    def __reduce__(self) -> tuple[Any, ...]:
        """Let it be pickled: it may be raised in one process, and told in another."""
        return type(self), (self.status, self.words, self.path, self.payload), self.__dict__


class JoinRefused(Answered):
    """The broker did not let this client in."""


class RequestFailed(Answered):
    """A request was answered by an error."""


class SubscribeFailed(Answered):
    """The broker did not make a subscription, or ended it by itself, e.g. because what comes next was removed."""


class PublishFailed(Answered):
    """The broker refused something that has no answer of its own: a publication, a notification, a broadcast.

    This is the first such error since the last flush; ``others`` holds those behind it, in their order, as far as they
    were kept, and ``count`` is how many there were in all.
    """

    others: "tuple[PublishFailed, ...]" = ()
    count: int = 1


def _titled(status: int) -> str:
    try:
        return f"{status} {Status(status).name.lower().replace('_', ' ')}"
    except ValueError:
        return str(status)


class Nacked(PublishFailed):
    """The broker answered a publication, or an ACK, by a NACK (BlipMQ document, "Error Codes").

    ``code`` and ``reason`` are the NACK's; ``number`` is what :meth:`publish` returned, None if it was an ACK, whose
    delivery tag is ``tag``. ``topic`` is the publication's, "" where it is not known any more.
    """

    number: int | None = None
    tag: int | None = None

    @property
    def code(self) -> int:
        """The NACK's code."""
        return self.status

    @property
    def reason(self) -> str:
        """The NACK's words."""
        return self.words

    @property
    def topic(self) -> str:
        """The topic."""
        return self.path


class ProduceFailed(Answered):
    """The broker did not take a message (MiniMQ document, section 7): it is not in the queue.

    ``path`` is its topic, ``id`` its id. Of several that were produced together this is the first; ``others`` holds
    those behind it.
    """

    id: str = ""
    others: "tuple[ProduceFailed, ...]" = ()


class ConsumeFailed(Answered):
    """The broker does not let this client consume; ``path`` is the topic."""
