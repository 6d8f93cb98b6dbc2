"""Everything that can be wrong with what a client says, as one tree of exceptions.

An error is raised where it is found and answered in one place per dialect, in that dialect's words. Each class
carries the status to answer with and whether the connection ends; its text is one sentence for the client.
"""

from collections.abc import Sequence
from typing import ClassVar

from fleximq.status import Status


class BrokerError(Exception):
    """A client asked for something that cannot be done.

    ``status`` is the code of the FlexiMQ document (section 5.1); ``closes`` says whether the connection ends
    after the answer. ``str(error)`` is the sentence that the client may read.
    """

    status: ClassVar[Status] = Status.INTERNAL_SERVER_ERROR
    closes: ClassVar[bool] = False


class BadRequest(BrokerError):
    """The message breaks a rule of its dialect, but its end was found: the connection lives on."""

    status = Status.BAD_REQUEST


class BadFraming(BrokerError):
    """The bytes are no frame of the dialect, so nothing behind them can be understood."""

    status = Status.BAD_REQUEST
    closes = True


class TooLarge(BrokerError):
    """An announced size is over the limit; found on the length, before the bytes arrive."""

    status = Status.PAYLOAD_TOO_LARGE
    closes = True


class Unauthorized(BrokerError):
    """The client has to say who it is first (401)."""

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
    """The journal has nothing as old as what was asked for (404); ``first`` is the oldest offset that it has."""

    def __init__(self, first: int) -> None:
        super().__init__(f"the first offset that is kept is {first}")
        self.first = first


class Conflict(BrokerError):
    """What is asked for contradicts the present state (409)."""

    status = Status.CONFLICT


class TooManyRequests(BrokerError):
    """The client has more open than it may (429)."""

    status = Status.TOO_MANY_REQUESTS


class NotImplementedByBroker(BrokerError):
    """A message type or feature this broker does not know (501)."""

    status = Status.NOT_IMPLEMENTED


class NoCapacity(BrokerError):
    """The broker is full (503)."""

    status = Status.SERVICE_UNAVAILABLE


class NotKept(BrokerError):
    """Messages that must not be lost could not be kept: a queue is full or the journal failed (500).

    ``refused`` holds the places, in their run, of the messages concerned; the others were taken. ``reason`` is what
    stands in the sentence behind the colon.
    """

    status = Status.INTERNAL_SERVER_ERROR

    def __init__(self, reason: str, refused: Sequence[int] = (0,)) -> None:
        super().__init__(f"durable publish failed: {reason}")
        self.reason = reason
        self.refused = refused


class NotRecorded(NotKept):
    """The journal did not take what has to go through it (503)."""

    status = Status.SERVICE_UNAVAILABLE


class ClientNotFound(BrokerError):
    """No client with that id can take this message (600)."""

    status = Status.CLIENT_NOT_FOUND


class InvalidRouting(BrokerError):
    """The routing entries are malformed or too many (602)."""

    status = Status.INVALID_ROUTING


class SubscriptionFailed(BrokerError):
    """The subscription could not be made (603)."""

    status = Status.SUBSCRIPTION_FAILED


class AuthenticationFailed(BrokerError):
    """The credentials are malformed or of an unknown kind (604)."""

    status = Status.AUTHENTICATION_FAILED


class JoinRejected(BrokerError):
    """Policy keeps this client out (605)."""

    status = Status.JOIN_REJECTED


class InvalidTopic(BadRequest):
    """A topic is empty or longer than :data:`fleximq.limits.TOPIC_BYTES`."""


class SettingError(Exception):
    """A setting has a value it cannot have; the text is one sentence that names it and what is allowed."""


class JournalError(Exception):
    """A journal cannot be opened; the text is one sentence for the operator that names its folder and why."""
