"""Names in chunks are a sorted set."""

from random import Random

from twisted.trial.unittest import SynchronousTestCase

from fleximq.values.sorted_names import SortedNames


class SortedNamesTests(SynchronousTestCase):
    """Against a set."""

    def test_likeASet(self) -> None:
        """Pages are those of a sorted list, whatever was added and removed."""
        random = Random(1)
        names, model = SortedNames(), set[str]()
        for step in range(20_000):
            name = f"t.{random.randrange(6000):04}"
            if name not in model:
                names.add(name)
                model.add(name)
            elif random.random() < (0.3 if step < 10_000 else 1):
                names.remove(name)
                model.remove(name)
            if not step % 500:
                self.assertEqual((names.all(), len(names)), (sorted(model), len(model)))
                expected = [each for each in sorted(model) if "t.1000" <= each < "t.4"]
                self.assertEqual(names.page(1 << 30, "t.1000", "t.4"), expected)
                self.assertEqual(names.page(1500, "t.1000", "t.4"), expected[:1500])
                self.assertEqual(names.page(7), sorted(model)[:7])
                self.assertEqual(names.count("t.1000", "t.4"), len(expected))
        for name in random.sample(sorted(model), len(model)):
            names.remove(name)
        self.assertEqual((names.all(), names.page(5)), ([], []))
        names.add("a")
        self.assertEqual(names.all(), ["a"])

    def test_nameAddedAmong150000MovesNoMoreThanOneChunk(self) -> None:
        """A name added among 150,000 moves no more than one chunk."""
        names = SortedNames()
        for number in range(150_000):
            names.add(str(number))
        self.assertLessEqual(max(map(len, names._chunks)), 1000)
