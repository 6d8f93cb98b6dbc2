"""How many calls a publication takes inside fleximq, from a read to its subscriber's transport."""

from fleximq.compiled import choice
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer
from tests.dialects.fleximq.way import Way
from tests.journal.at_once import JournalAtOnce
from tests.journal.recorder import Recorder


class CallCountTests(FlexiCase):
    """One publisher and one subscriber that joined without a header, so that the first PUB tells the layout."""

    def way(self, publisher: FlexiPeer, subscriber: FlexiPeer, topic: str, journal: JournalAtOnce | None = None) -> Way:
        """Publish once and return the calls up to the write; the way is printed."""
        way = Way()
        written = subscriber.transport.write

        def write(data: bytes) -> None:
            way.end()
            written(data)

        subscriber.transport.write = write  # type: ignore[method-assign]
        with way:
            publisher.publish(topic, "hello")
            if journal is not None:
                journal.worker.drain()
            self.clock.advance(0)
        subscriber.transport.write = written  # type: ignore[method-assign]
        self.assertEqual(subscriber.values(), ["hello"])
        print(f"\n{way}")
        return way

    def test_volatile(self) -> None:
        """The first PUB of a topic takes at most 45 calls, a repeated one at most 12."""
        subscriber, publisher = self.server.join(), self.server.join()
        subscriber.subscribe("news")
        self.assertLessEqual(len(self.way(publisher, subscriber, "news").calls), 45)
        self.assertLessEqual(len(self.way(publisher, subscriber, "news").calls), 12)

    def test_durable(self) -> None:
        """A repeated PUB to a durable topic takes at most 70 calls, through the journal's writer and back; 72 without
        the compiled scanner.
        """
        disk = Recorder()
        disk.makeFolder("/disk")
        journal = JournalAtOnce(disk)
        journal.open()
        self.server = self.makeServer(journal=journal, durable=("d",))
        journal.keeper = self.server.broker.checkpointer
        journal.begin()
        subscriber, publisher = self.server.join(), self.server.join()
        subscriber.subscribe("d")
        self.way(publisher, subscriber, "d", journal)
        most = 70 if choice.IMPLEMENTATION == "compiled" else 72
        self.assertLessEqual(len(self.way(publisher, subscriber, "d", journal).calls), most)
