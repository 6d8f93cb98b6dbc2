"""What was refused is told once, the first first."""

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import PublishFailed
from fleximq.client.protocol.refusals import MAX_REFUSALS, Refusals


def refusals(*paths: str) -> Refusals:
    """Return refusals with these paths."""
    found = Refusals()
    for path in paths:
        found.add(PublishFailed(400, f"no {path}", path))
    return found


class RefusalsTests(SynchronousTestCase):
    """Refusals since some moment."""

    def test_none(self) -> None:
        """None are no error."""
        refusals().check()
        self.assertIsNone(refusals().last)

    def test_others(self) -> None:
        """The first is raised, the others stand in it in their order."""
        error = self.assertRaises(PublishFailed, refusals("a", "b", "c").check)
        self.assertEqual((error.path, error.words, error.count), ("a", "no a", 3))
        self.assertEqual([other.path for other in error.others], ["b", "c"])

    def test_bound(self) -> None:
        """Beyond a thousand they are counted only."""
        error = self.assertRaises(PublishFailed, refusals(*map(str, range(MAX_REFUSALS + 5))).check)
        self.assertEqual(
            (len(error.others), error.count, error.others[-1].path),
            (MAX_REFUSALS - 1, MAX_REFUSALS + 5, str(MAX_REFUSALS - 1)),
        )

    def test_extend(self) -> None:
        """Later ones stand behind."""
        error = self.assertRaises(PublishFailed, Refusals([refusals("a"), refusals("b", "c")]).check)
        self.assertEqual(([each.path for each in error.others], error.count), (["b", "c"], 3))

    def test_nameless(self) -> None:
        """The first that names nothing can be taken out."""
        kept = refusals("a", "", "b")
        found = kept.popNameless()
        assert found is not None
        self.assertEqual((found.path, kept.count, kept.popNameless()), ("", 2, None))
