"""Errors of all clients. Invalid settings are :class:`fleximq.errors.SettingError`."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from fleximq.status import Status

#: Another attempt to join would get the same answer.
_PERMANENT = frozenset({Status.BAD_REQUEST, Status.UNAUTHORIZED, Status.FORBIDDEN, Status.AUTHENTICATION_FAILED})


class TopicWarning(UserWarning):
    """The topic of a subscription or publication may not mean what was typed; the text says why."""


class ClientError(Exception):
    """The base class."""


class ConnectionLost(ClientError):
    """The connection could not be made, or it ended; messages in transit may have arrived or not.

    With :attr:`~fleximq.client.settings.State.AWAY`, ``missing`` lists the topics and patterns whose subscriptions miss
    messages until the client has rejoined: those without a start. ``refused`` has the refusals since the last flush,
    ``confirmed``: see :class:`ProduceFailed`. ``queues`` lists those whose consumers get nothing until then.
    """

    queues: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    refused: "tuple[PublishFailed, ...]" = ()
    confirmed: Mapping[int, str] = MappingProxyType({})


class Untrusted(ConnectionLost):
    """One side does not trust the other's certificate; another attempt would fail, too."""


class Overrun(ClientError):
    """A subscription had too many unread deliveries and was ended; those received before can still be read."""


class BufferFull(ClientError):
    """The broker is unreachable, and the buffer for publications is full; the message was dropped."""


class Answered(ClientError):
    """The broker or another client answered with a status of 400 or more.

    ``status`` is the number (FlexiMQ document 5.1), ``words`` its text, ``path`` the path or topic concerned or "", and
    ``payload`` the encoded payload of the answer.
    """

    def __init__(self, status: int, words: str, path: str = "", payload: bytes = b"") -> None:
        super().__init__(f"{_titled(status)}: {words}" if words else _titled(status))
        self.status = status
        self.words = words
        self.path = path
        self.payload = payload

    def __reduce__(self) -> tuple[Any, ...]:
        """Support pickling, so that it can cross processes."""
        return type(self), (self.status, self.words, self.path, self.payload), self.__dict__


class JoinRefused(Answered):
    """The broker refused to admit the client."""


class RequestFailed(Answered):
    """The answer to a request is an error."""


class SubscribeFailed(Answered):
    """The broker refused a subscription, or ended it, e.g. because its next message was removed."""


class PublishFailed(Answered):
    """The broker refused a message without an answer of its own: a publication, notification or broadcast.

    This is the first refusal since the last flush. ``others`` has later ones, in their order and up to a limit;
    ``count`` is the total number.
    """

    others: "tuple[PublishFailed, ...]" = ()
    count: int = 1


def _titled(status: int) -> str:
    try:
        return f"{status} {Status(status).name.lower().replace('_', ' ')}"
    except ValueError:
        return str(status)


class NotSettled(PublishFailed):
    """A job was not settled: it was already, or its connection or lease has ended, so that it is delivered again.

    ``path`` is the queue, or ``/queue/settle`` if the broker refused.
    """


class Nacked(PublishFailed):
    """The broker answered a publication or an ACK by a NACK (BlipMQ document, "Error Codes").

    ``code`` and ``reason`` are the NACK's. ``number`` is the result of :meth:`publish`, or None for an ACK, whose
    delivery tag is ``tag``. ``topic`` is the publication's, "" if unknown.
    """

    number: int | None = None
    tag: int | None = None

    @property
    def code(self) -> int:
        """The NACK's code."""
        return self.status

    @property
    def reason(self) -> str:
        """The NACK's text."""
        return self.words

    @property
    def topic(self) -> str:
        """The topic."""
        return self.path


class ProduceFailed(Answered):
    """The broker refused a message (MiniMQ document, section 7); it is not in the queue.

    ``path`` is its topic, ``id`` its id. Of several messages produced at once this is the first refused one, the value
    at the index ``place``; ``others`` has further ones. ``confirmed`` has the ids of those in the queue, by index.
    Values in neither were not answered: after a line over the broker's limit, they are not in the queue.
    """

    id: str = ""
    place: int | None = None
    others: "tuple[ProduceFailed, ...]" = ()
    confirmed: Mapping[int, str] = MappingProxyType({})

    def __str__(self) -> str:
        return super().__str__() + ("" if self.place is None else f" (the value at index {self.place})")


class ProduceTimeout(TimeoutError):
    """Not all messages that were produced at once were answered in time; ``confirmed``: see :class:`ProduceFailed`."""

    confirmed: Mapping[int, str] = MappingProxyType({})


class ConsumeFailed(Answered):
    """The broker refused a CONSUME; ``path`` is the topic."""


def isTransient(error: Exception) -> bool:
    """Return whether another attempt to connect may succeed after this error."""
    return not isinstance(error, Untrusted) and not (isinstance(error, JoinRefused) and error.status in _PERMANENT)
