"""The exceptions a client can cause, as one tree: raised where found, answered in one place per dialect in its words.

Each class carries the status to answer with and says whether the connection ends; its text is a sentence for clients.
"""

from collections.abc import Sequence
from typing import Any, ClassVar

from fleximq.status import Status


class BrokerError(Exception):
    """A request of a client failed; ``str(error)`` is the sentence that the client may read.

    ``status`` is the code of the FlexiMQ document (section 5.1); ``closes``: the connection ends after the answer.
    ``principal`` is the name of a client with valid credentials that may not join.
    """

    status: ClassVar[Status] = Status.INTERNAL_SERVER_ERROR
    closes: ClassVar[bool] = False
    principal: str | None = None

    def __init_subclass__(cls, status: Status | None = None, closes: bool | None = None, **more: Any) -> None:
        super().__init_subclass__(**more)
        cls.status = cls.status if status is None else status
        cls.closes = cls.closes if closes is None else closes


class BadRequest(BrokerError, status=Status.BAD_REQUEST):
    """A complete message breaks a rule of its dialect; the connection stays open."""


class BadFraming(BrokerError, status=Status.BAD_REQUEST, closes=True):
    """The bytes are no frame of the dialect, so the rest of the stream cannot be read."""


class TooLarge(BrokerError, status=Status.PAYLOAD_TOO_LARGE, closes=True):
    """An announced size is over the limit; refused on the length, before the bytes arrive."""


class Unauthorized(BrokerError, status=Status.UNAUTHORIZED):
    """The client must authenticate first (401)."""


class Forbidden(BrokerError, status=Status.FORBIDDEN):
    """The client may not do this (403)."""


class NotPermitted(Forbidden):
    """The client's permissions do not cover this (403; each dialect has its own words for it).

    ``name`` is the topic or path that it is about, "" without one.
    """

    def __init__(self, words: str, name: str = "") -> None:
        super().__init__(words)
        self.name = name


class NotFound(BrokerError, status=Status.NOT_FOUND):
    """The path, subscription or delivery named does not exist (404)."""


class NoLongerKept(NotFound):
    """The requested offset is older than the journal (404); ``first`` is the oldest offset available."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the first offset that is kept is {first}; 'first' begins there")
        self.first = first


class UnknownDeliveries(NotFound):
    """Deliveries that a consumer settles are not its own (404), or not any more; ``tags`` are theirs."""

    def __init__(self, queue: str, tags: Sequence[int]) -> None:
        super().__init__(f"{len(tags)} deliveries of {queue!r} are not this consumer's")
        self.queue = queue
        self.tags = tags


class Conflict(BrokerError, status=Status.CONFLICT):
    """The request contradicts the present state (409)."""


class TooManyRequests(BrokerError, status=Status.TOO_MANY_REQUESTS):
    """The client has reached a limit of open requests or subscriptions (429)."""


class NotImplementedByBroker(BrokerError, status=Status.NOT_IMPLEMENTED):
    """The broker does not know this message type or feature (501)."""


class NoCapacity(BrokerError, status=Status.SERVICE_UNAVAILABLE):
    """The broker is full (503)."""


class NotOwner(NoCapacity):
    """The operation needs the journal, which another node of the mesh owns (503)."""


class NotKept(BrokerError, status=Status.INTERNAL_SERVER_ERROR):
    """A durable publish failed: a queue is full or the journal failed (500).

    ``refused`` are the indexes, in their run, of the failed messages; the others were accepted. ``reason`` is the part
    of the sentence after the colon.
    """

    def __init__(self, reason: str, refused: Sequence[int] = (0,)) -> None:
        super().__init__(f"durable publish failed: {reason}")
        self.reason = reason
        self.refused = refused

    def each(self) -> "Sequence[NotKept]":
        """Return the error of each refused message."""
        return [self] * len(self.refused)

    def at(self, refused: Sequence[int]) -> "NotKept":
        """Return the error with other indexes of the same messages."""
        return type(self)(self.reason, refused)


class NotRecorded(NotKept, status=Status.SERVICE_UNAVAILABLE):
    """The journal refused a record that must be durable (503)."""


class Unfit(NotKept, status=Status.UNPROCESSABLE_CONTENT):
    """Messages do not fit the schema of their topic (422); ``reasons`` has that of each, which names the field."""

    def __init__(self, reason: str, refused: Sequence[int] = (0,), reasons: Sequence[str] = ()) -> None:
        super().__init__(reason, refused)
        self.args = (reason,)
        self.reasons = reasons or [reason] * len(refused)

    def each(self) -> Sequence[NotKept]:
        return [Unfit(reason, (place,)) for place, reason in zip(self.refused, self.reasons, strict=True)]

    def at(self, refused: Sequence[int]) -> NotKept:
        return Unfit(self.reason, refused, self.reasons)


class NotStored(NoCapacity):
    """Acknowledgements or an operator's acts are in effect, but not on disk yet (503); they will be, with the journal's
    next write.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"done, but not stored yet: {reason}")


class ClientNotFound(BrokerError, status=Status.CLIENT_NOT_FOUND):
    """No client with that id can receive this message (600)."""


class InvalidRouting(BrokerError, status=Status.INVALID_ROUTING):
    """The routing entries are malformed or too many (602)."""


class SubscriptionFailed(BrokerError, status=Status.SUBSCRIPTION_FAILED):
    """The subscription could not be created (603)."""


class ConsumerEnded(SubscriptionFailed):
    """A client does not consume from a queue any more (603): by default since it may not."""

    def __init__(self, queue: str, reason: str = "") -> None:
        super().__init__(reason or f"consuming from {queue!r} is not permitted any more")
        self.queue = queue


class AuthenticationFailed(BrokerError, status=Status.AUTHENTICATION_FAILED):
    """The credentials are malformed or of an unknown kind (604)."""


class JoinRejected(BrokerError, status=Status.JOIN_REJECTED):
    """A policy refuses this client (605)."""


class InvalidTopic(BadRequest):
    """A topic is empty or longer than :data:`fleximq.limits.TOPIC_BYTES`."""


class SettingError(Exception):
    """A setting has an invalid value; the text is one sentence that names the setting and the allowed values."""


class JournalError(Exception):
    """A journal cannot be opened; the text is one sentence for the operator that names its folder and why."""


def systemReason(error: OSError) -> str:
    """Return the system's reason for an error, as the end of a sentence."""
    words = error.strerror or str(error)
    return words[:1].lower() + words[1:] if words[1:2].islower() else words
