"""What MiniMQ says and is told, between lines and the broker's values."""

from collections.abc import Sequence

from ulid import ULID
from zope.interface import implementer

from fleximq.broker.values import Delivery
from fleximq.errors import BadRequest, BrokerError, Forbidden, NotImplementedByBroker, TooLarge
from fleximq.interfaces import ISource
from fleximq.message import Message
from fleximq.wire.mini_line import NO_MESSAGE, encodeError
from fleximq.wire.mini_message import renderDelivery

#: The code of each kind of error; the first that fits is taken, and 500 if none does.
_CODES: tuple[tuple[type[BrokerError], int], ...] = (
    (BadRequest, 400),
    (TooLarge, 400),
    (Forbidden, 403),
    (NotImplementedByBroker, 501),
)


class TurnedAway(Forbidden):
    """This peer may not come in at all."""

    closes = True


@implementer(ISource)
class MiniSource:
    """The source of PRODUCEs: a body is the list of its messages."""

    def messages(self, body: list[Message]) -> Sequence[Message]:
        """Return the messages."""
        return body

    def pick(self, body: list[Message], places: Sequence[int]) -> list[Message]:
        """Return the messages at these places."""
        return [body[place] for place in places]


#: The source of all MiniMQ publications.
SOURCE = MiniSource()


def renderError(error: BrokerError) -> bytes:
    """Return the one line that answers an error (MiniMQ document, section 7)."""
    code = next((code for kind, code in _CODES if isinstance(error, kind)), 500)
    return encodeError(code, str(error))


def renderAnswer(topic: str, delivery: Delivery | None) -> bytes:
    """Return the line that answers a CONSUME; without a delivery it is NO_MSG."""
    if delivery is None:
        return NO_MESSAGE
    return renderDelivery(delivery.message, topic, delivery.message.message_id or "")


def newUlid() -> str:
    """Return a new ULID."""
    return str(ULID())
