"""Jobs: messages of a queue that were delivered to this client alone, until it settles them or its connection ends."""

from collections.abc import Callable, Mapping
from logging import Logger
from typing import Any

from fleximq.client.errors import NotSettled
from fleximq.client.events import Delivery
from fleximq.client.times import Duration, milliseconds
from fleximq.limits import KIBIBYTE
from fleximq.status import Status

#: Limit of the words of a rejection, in bytes.
WORDS_BYTES = 4 * KIBIBYTE
#: The priority of a message without one.
_PRIORITY = 4
#: Settles a job: with ``ack``, ``retry``, ``reject`` or ``extend``, and the values that belong to it; None without any.
Settle = Callable[["Job", str, Any], None]


class Reject(Exception):
    """Raise it in the function of :meth:`work` to reject the job: it becomes a dead letter with these words."""


class Job:
    """One job. Settle it once: :meth:`ack`, :meth:`retry` or :meth:`reject`; none of them waits.

    It belongs to this client while its connection lasts, or during the ``lease`` of its queue; then other consumers get
    it. Settlements are sent together, a moment later; after the client's ``flush`` the broker has carried them out and,
    for a durable queue, stored them. ``attempt`` is 1 at the first delivery; ``delivery`` has the message.
    """

    __slots__ = ("_connection", "_settle", "attempt", "delivery", "is_settled", "queue", "tag")

    def __init__(self, delivery: Delivery, connection: object, settle: Settle) -> None:
        about = delivery.header["delivery"]
        self.queue: str = about["queue"]
        self.tag: int = about["tag"]
        self.attempt: int = about["attempt"]
        self.delivery = delivery
        self.is_settled = False
        self._connection = connection
        self._settle = settle

    def __repr__(self) -> str:
        return f"<Job {self.tag} of {self.queue}, attempt {self.attempt}>"

    @property
    def topic(self) -> str:
        """The topic of its publication."""
        return self.delivery.topic

    @property
    def value(self) -> Any:
        """The payload's value; raises ValueError if it cannot be decoded."""
        return self.delivery.value

    @property
    def payload(self) -> bytes:
        """The encoded value."""
        return self.delivery.payload

    @property
    def header(self) -> Mapping[str, Any]:
        """The complete header."""
        return self.delivery.header

    @property
    def key(self) -> str | bytes | None:
        """The key that its publisher gave it."""
        return self.header.get("key")

    @property
    def priority(self) -> int:
        """The priority that its publisher gave it; 4 without one."""
        return self.header.get("priority", _PRIORITY)  # type: ignore[no-any-return]

    @property
    def message_id(self) -> str | None:
        """The message id that its publisher gave it."""
        return self.header.get("message_id")

    @property
    def sender(self) -> str | None:
        """The principal of the publisher, if the broker says so (``--sender``)."""
        return self.delivery.sender

    def ack(self) -> None:
        """Acknowledge it: it is done, and never delivered again.

        :raises NotSettled: it is already settled, or its connection has ended, so that it is delivered again.
        """
        self._end("ack", None)

    def retry(self, delay: Duration | None = None) -> None:
        """Have it delivered again, after a delay in seconds; None: as the queue's definition says, or at once.

        After its last attempt it becomes a dead letter. Errors as :meth:`ack`, and ValueError for a negative delay.
        """
        self._end("retry", (None if delay is None else milliseconds("delay", delay),))

    def reject(self, reason: str = "") -> None:
        """Make it a dead letter at once, with the first 4 KiB of these words; errors as :meth:`ack`."""
        self._end("reject", (_cut(reason),))

    def extend(self, lease: Duration) -> None:
        """Keep it for so many seconds from now, in a queue with a ``lease``; errors as :meth:`ack`."""
        self._check()
        self._settle(self, "extend", (milliseconds("lease", lease),))

    def _end(self, kind: str, more: Any) -> None:
        self._check()
        self._settle(self, kind, more)
        self.is_settled = True

    def _check(self) -> None:
        if self.is_settled:
            raise NotSettled(Status.NOT_FOUND, f"the job {self.tag} of {self.queue!r} is already settled", self.queue)


def acknowledgeHanded(job: Job | None, log: Logger) -> None:
    """Acknowledge the job that an iterator handed out before, unless it is settled. One that does not belong to the
    client any more is logged, since it is delivered again.
    """
    if job is not None and not job.is_settled:
        try:
            job.ack()
        except NotSettled as error:
            log.warning("%r is not acknowledged: %s", job, error.words)


def _cut(words: str) -> str:
    if not isinstance(words, str):
        raise TypeError(f"the reason is {words!r}, but must be a text")
    return words.encode("utf-8", "replace")[:WORDS_BYTES].decode("utf-8", "ignore")
