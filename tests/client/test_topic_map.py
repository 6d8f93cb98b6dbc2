"""fleximq.client.topic_map; with real clusters in tests.cluster.nats.test_several_clusters."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.topic_map import TopicMap


class TopicMapTests(SynchronousTestCase):
    """Three clusters, one for all that the others do not have."""

    def setUp(self) -> None:
        self.map = TopicMap({"": "main", "metrics": "metrics", "metrics.disk": "disks"})

    def test_longest(self) -> None:
        """The longest prefix counts, in whole levels; a dead letter is found by its topic."""
        wanted = {
            "orders": "main", "metrics": "metrics", "metrics.cpu": "metrics", "metrics/cpu": "metrics",
            "metrics2": "main", "metrics.disk.sda": "disks", "metrics.disk": "disks", "$dead/metrics.cpu": "metrics",
        }  # fmt: skip
        self.assertEqual({name: self.map[name] for name in wanted}, wanted)

    def test_patterns(self) -> None:
        """A pattern within one cluster has a client; one that reaches into another is refused."""
        self.assertEqual((self.map["metrics.disk.#"], self.map["orders.*"]), ("disks", "main"))
        for pattern in ("#", "*.cpu", "metrics.*", "metrics.#", "*"):
            with self.assertRaises(LookupError, msg=pattern) as caught:
                self.map[pattern]
            self.assertIn("several clusters", str(caught.exception))

    def test_none(self) -> None:
        """A name of no cluster is refused; so are system topics, which each has."""
        with self.assertRaises(LookupError) as caught:
            TopicMap({"orders": 1, "metrics": 2})["jobs"]
        self.assertEqual(str(caught.exception), "no cluster has jobs; these have prefixes: metrics, orders")
        with self.assertRaises(LookupError):
            self.map["$sys/clients/left"]
