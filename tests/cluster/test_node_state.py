"""fleximq.cluster.node_state."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cluster.interfaces import AHEAD, NodeRecord, ShardOwner
from fleximq.cluster.node_state import NodeState, checkSums, differing, whyNotTo

OWNER = ShardOwner("a", 3, 7)


def record(applied: int | None, seconds: float = 100.0, **settings: object) -> NodeRecord:
    """Return the key of a node whose copy has a sequence and frames until some time."""
    about = NodeState("1", "following", 5.0, 10, round(seconds * 1e6), checkSums(settings), "why")
    return NodeRecord({} if applied is None else {0: applied}, about._asdict())


class NodeStateTests(SynchronousTestCase):
    """What operators read from keys."""

    def test_otherVersion(self) -> None:
        """A key without some of the fields, or with more, can be read."""
        self.assertEqual(NodeState.of(NodeRecord({}, {"version": "2", "more": 1})).version, "2")

    def test_differing(self) -> None:
        """Settings are compared by their check sums; patterns in another order are the same."""
        own = record(1, durable=("a", "b"), redelivery=30.0)
        self.assertEqual(differing(record(1, durable=("b", "a"), redelivery=30.0), own), [])
        self.assertEqual(differing(record(1, durable=("a",), redelivery=31.0), own), ["durable", "redelivery"])

    def test_move(self) -> None:
        """A shard moves to a living node only whose copy is close to the stream's end."""
        living = {
            "a": record(9), "b": record(9), "close": record(8, 98.5), "far": record(8, 97.5),
            "broken": record(None), "ahead": record(AHEAD),
        }  # fmt: skip
        said = {node: whyNotTo(0, node, OWNER, living) for node in [*living, "none"]}
        self.assertEqual((said["b"], said["close"]), ("", ""))
        self.assertEqual(said["a"], "a owns shard 0 already")
        self.assertEqual(said["far"], "the copy of far is 1 messages of the stream, 2 seconds, behind")
        self.assertEqual(said["broken"], "the copy of broken cannot be used: why")
        self.assertEqual(said["ahead"], "the copy of ahead cannot be used: why")
        self.assertIn("there is no living node named none; these are: a, ahead, b,", said["none"])
        del living["a"]
        self.assertEqual(whyNotTo(0, "b", OWNER, living), "shard 0 has no living owner")
