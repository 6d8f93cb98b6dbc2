"""A connection is not read while more waits than should, for the disk or for a transaction that is read back, and it
has published some of that.

So what is on its way to the disk is bounded by what the journal takes at once and one read of each connection, what
waits behind a transaction likewise, and what a connection has in its line of answers by what it may leave unread.
Others are read as ever. The connection is not silent meanwhile: it is not listened to.
"""

from enum import Enum

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.connection.slow_consumer import PausablePublisher
from fleximq.dialects.session import Session


class PublisherPause(Enum):
    """Why a connection is not read for now."""

    OVERLOADED = "too much waits for the disk, or for a transaction"
    UNSENT = "its own answers that wait for the disk are too many"


def pausePublisher(session: Session, client: ConnectedClient, reader: PausablePublisher) -> None:
    """Stop reading a connection whose publications are on their way, if that is too much.

    It is noted as their publisher, in case that somebody who gets them later holds it up.
    """
    broker = session.broker
    reading = reader.readPauses
    client.reader = reader
    if broker.overloaded:
        reading.pause(PublisherPause.OVERLOADED)
        broker.whenRelieved(lambda: reading.resume(PublisherPause.OVERLOADED))
    if 0 < session.pendingAnswerBytes > session.outbox.space:
        reading.pause(PublisherPause.UNSENT)
        broker.whenPublicationsDecided(lambda: reading.resume(PublisherPause.UNSENT), client)
