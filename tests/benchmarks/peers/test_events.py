"""The bytes that the benchmark expects of Server-Sent Events."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.events import Events


class EventsTests(SynchronousTestCase):
    """Publications in FlexiMQ, and events."""

    def test_aPayloadIsText(self) -> None:
        self.assertTrue(Events().publication(1000, b"bench.1", b"Hi").endswith(b"\x00\x00\x00\x03\xa2Hi"))

    def test_anEventIsOneLineOfData(self) -> None:
        self.assertEqual(Events().delivery(1000, b"bench.1", b"Hi"), b'data: {"topic":"bench.1","value":"Hi"}\n\n')
