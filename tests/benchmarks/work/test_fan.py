"""What publishers send: the same for every broker, drawn at random."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.work.fan import Fan, names


class MessagesTests(SynchronousTestCase):
    """The topics and payloads of a block."""

    def test_alike(self) -> None:
        """Every broker gets the same ones."""
        fan = Fan(topics=10, sizes=(16, 100))
        self.assertEqual(fan.messages(names(10)), fan.messages(names(10)))

    def test_atRandom(self) -> None:
        """Topics do not come in turn, even where there are many; each twice on the average."""
        topics = names(5000)
        drawn = [topic for topic, _ in Fan(topics=5000).messages(topics)]
        self.assertEqual(len(drawn), 10_000)
        self.assertTrue(4000 < len(set(drawn)) < 5000, len(set(drawn)))
        self.assertNotEqual(drawn[:10], sorted(drawn[:10]))

    def test_sizes(self) -> None:
        """All sizes occur, and no two payloads of 16 bytes and more are alike."""
        payloads = [payload for _, payload in Fan(sizes=(8, 16, 100)).messages(names(1))]
        self.assertEqual({len(payload) for payload in payloads}, {8, 16, 100})
        numbered = [payload for payload in payloads if len(payload) > 8]
        self.assertEqual(len(set(numbered)), len(numbered))

    def test_names(self) -> None:
        """All topics have names of one length."""
        self.assertEqual({len(name) for name in names(100_000)}, {11})
