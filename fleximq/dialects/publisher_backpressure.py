"""Pauses publishers while too much awaits the journal, or a transaction that is read back.

A connection is paused if it has published part of that. So the data on its way to the disk is bounded by one journal
write and one read of each connection, the data waiting for a transaction likewise, and the answers of a connection by
its outbox limit. Other connections are read normally. A paused connection does not count as silent.
"""

from fleximq.broker.envelope import ConnectedClient
from fleximq.dialects.connection.read_pauses import ReadPause
from fleximq.dialects.connection.slow_consumer import PausablePublisher
from fleximq.dialects.session import Session


def pausePublisher(session: Session, client: ConnectedClient, reader: PausablePublisher) -> None:
    """Pause a connection with pending publications if the broker is overloaded or too many answers are pending.

    It is also recorded as their publisher, for consumers that pause it.
    """
    broker = session.broker
    reading = reader.readPauses
    client.reader = reader
    if broker.overloaded:
        reading.pause(ReadPause.OVERLOADED)
        broker.whenRelieved(lambda: reading.resume(ReadPause.OVERLOADED))
    answers = session.answers
    if answers is not None and 0 < answers.size > session.outbox.space:
        reading.pause(ReadPause.UNSENT)
        broker.whenPublicationsDecided(lambda: reading.resume(ReadPause.UNSENT), client)
