"""The exceptions a client can cause, as one tree.

An error is raised where it is found and answered in one place per dialect, in that dialect's words. Each class carries
the status to answer with and says whether the connection ends; its text is one sentence for the client.
"""

from collections.abc import Sequence
from typing import ClassVar

from fleximq.status import Status


class BrokerError(Exception):
    """A request of a client failed; ``str(error)`` is the sentence that the client may read.

    ``status`` is the code of the FlexiMQ document (section 5.1); ``closes``: the connection ends after the answer.
    ``principal`` is the name of a client with valid credentials that may not join.
    """

    status: ClassVar[Status] = Status.INTERNAL_SERVER_ERROR
    closes: ClassVar[bool] = False
    principal: str | None = None


class BadRequest(BrokerError):
    """A complete message breaks a rule of its dialect; the connection stays open."""

    status = Status.BAD_REQUEST


class BadFraming(BrokerError):
    """The bytes are no frame of the dialect, so the rest of the stream cannot be read."""

    status = Status.BAD_REQUEST
    closes = True


class TooLarge(BrokerError):
    """An announced size is over the limit; refused on the length, before the bytes arrive."""

    status = Status.PAYLOAD_TOO_LARGE
    closes = True


class Unauthorized(BrokerError):
    """The client must authenticate first (401)."""

    status = Status.UNAUTHORIZED


class Forbidden(BrokerError):
    """The client may not do this (403)."""

    status = Status.FORBIDDEN


class NotPermitted(Forbidden):
    """The client's permissions do not cover this (403; each dialect has its own words for it)."""


class NotFound(BrokerError):
    """The path, subscription or delivery named does not exist (404)."""

    status = Status.NOT_FOUND


class NoLongerKept(NotFound):
    """The requested offset is older than the journal (404); ``first`` is the oldest offset available."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the first offset that is kept is {first}; 'first' begins there")
        self.first = first


class Conflict(BrokerError):
    """The request contradicts the present state (409)."""

    status = Status.CONFLICT


class TooManyRequests(BrokerError):
    """The client has reached a limit of open requests or subscriptions (429)."""

    status = Status.TOO_MANY_REQUESTS


class NotImplementedByBroker(BrokerError):
    """The broker does not know this message type or feature (501)."""

    status = Status.NOT_IMPLEMENTED


class NoCapacity(BrokerError):
    """The broker is full (503)."""

    status = Status.SERVICE_UNAVAILABLE


class NotKept(BrokerError):
    """A durable publish failed: a queue is full or the journal failed (500).

    ``refused`` are the indexes, in their run, of the failed messages; the others were accepted. ``reason`` is the part
    of the sentence after the colon.
    """

    status = Status.INTERNAL_SERVER_ERROR

    def __init__(self, reason: str, refused: Sequence[int] = (0,)) -> None:
        super().__init__(f"durable publish failed: {reason}")
        self.reason = reason
        self.refused = refused


class NotRecorded(NotKept):
    """The journal refused a record that must be durable (503)."""

    status = Status.SERVICE_UNAVAILABLE


class ClientNotFound(BrokerError):
    """No client with that id can receive this message (600)."""

    status = Status.CLIENT_NOT_FOUND


class InvalidRouting(BrokerError):
    """The routing entries are malformed or too many (602)."""

    status = Status.INVALID_ROUTING


class SubscriptionFailed(BrokerError):
    """The subscription could not be created (603)."""

    status = Status.SUBSCRIPTION_FAILED


class AuthenticationFailed(BrokerError):
    """The credentials are malformed or of an unknown kind (604)."""

    status = Status.AUTHENTICATION_FAILED


class JoinRejected(BrokerError):
    """A policy refuses this client (605)."""

    status = Status.JOIN_REJECTED


class InvalidTopic(BadRequest):
    """A topic is empty or longer than :data:`fleximq.limits.TOPIC_BYTES`."""


class SettingError(Exception):
    """A setting has an invalid value; the text is one sentence that names the setting and the allowed values."""


class JournalError(Exception):
    """A journal cannot be opened; the text is one sentence for the operator that names its folder and why."""
