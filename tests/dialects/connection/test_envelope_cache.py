"""The envelope cache: bounded in entries and bytes, oldest out first."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.envelope import Envelope
from fleximq.dialects.connection.envelope_cache import (
    ENTRY_BYTES,
    MAX_BYTES,
    MAX_ENTRIES,
    MIN_ENTRIES,
    CacheBudget,
    EnvelopeCache,
)


class EnvelopeCacheTests(SynchronousTestCase):
    """What is kept, and what is not."""

    def remembered(self, cache: EnvelopeCache[Envelope], *keys: bytes) -> list[bytes]:
        """Remember these, each meaning itself, and return what is kept."""
        for key in keys:
            meaning: Any = key
            cache.remember(key, meaning)
        return list(cache)

    def test_found(self) -> None:
        """What was remembered is found, everything else is not."""
        cache = EnvelopeCache[Envelope](CacheBudget())
        self.remembered(cache, b"a")
        self.assertEqual((cache.get(b"a"), cache.get(b"b")), (b"a", None))

    def test_entries(self) -> None:
        """At the bound all are kept; above it the oldest goes."""
        cache = EnvelopeCache[Envelope](CacheBudget(), entries=3, size=100)
        self.assertEqual(self.remembered(cache, b"a", b"b", b"c"), [b"a", b"b", b"c"])
        self.assertEqual(self.remembered(cache, b"d"), [b"b", b"c", b"d"])

    def test_bytes(self) -> None:
        """The same for bytes; a large one pushes out several."""
        cache = EnvelopeCache[Envelope](CacheBudget(), entries=100, size=10)
        self.assertEqual(self.remembered(cache, b"aaa", b"bbb", b"cccc"), [b"aaa", b"bbb", b"cccc"])
        self.assertEqual(self.remembered(cache, b"d"), [b"bbb", b"cccc", b"d"])
        self.assertEqual(self.remembered(cache, b"e" * 9), [b"d", b"e" * 9])

    def test_tooLarge(self) -> None:
        """One as large as the whole cache is kept alone, a larger one is not, and pushes nothing out."""
        cache = EnvelopeCache[Envelope](CacheBudget(), entries=100, size=10)
        self.assertEqual(self.remembered(cache, b"a", b"b" * 10), [b"b" * 10])
        self.assertEqual(self.remembered(cache, b"c" * 11), [b"b" * 10])

    def test_twice(self) -> None:
        """One that is known counts once."""
        cache = EnvelopeCache[Envelope](CacheBudget(), entries=100, size=10)
        self.remembered(cache, b"aaa", b"aaa", b"aaa", b"aaa")
        self.assertEqual((list(cache), cache.size), ([b"aaa"], 3))

    def test_forgotten(self) -> None:
        """One that was forgotten is neither found nor counted; forgetting what is not there changes nothing."""
        cache = EnvelopeCache[Envelope](CacheBudget(), entries=100, size=10)
        self.remembered(cache, b"aaa", b"bb")
        cache.forget(b"aaa")
        cache.forget(b"aaa")
        cache.forget(b"never")
        self.assertEqual((list(cache), cache.size), ([b"bb"], 2))

    def test_bounds(self) -> None:
        """What a connection's own cache may hold."""
        cache = EnvelopeCache[Envelope](CacheBudget())
        self.remembered(cache, *(b"%d" % number for number in range(MAX_ENTRIES + 10)))
        self.assertEqual(len(cache), MAX_ENTRIES)
        self.remembered(cache, *(b"%05d" % number + bytes(1000) for number in range(1000)))
        self.assertLessEqual(sum(map(len, cache)), MAX_BYTES)
        self.assertGreater(sum(map(len, cache)), MAX_BYTES - 1005)

    def test_purse(self) -> None:
        """When the common purse is empty, each new one takes the place of one's own oldest; a few are kept anyway."""
        budget = CacheBudget(40 * (ENTRY_BYTES + 2))
        first, second = EnvelopeCache[Envelope](budget), EnvelopeCache[Envelope](budget)
        keys = [b"%02d" % number for number in range(50)]
        self.assertEqual(self.remembered(first, *keys[:40]), keys[:40])
        self.assertEqual(budget.remaining, 0)
        self.assertEqual(self.remembered(first, *keys[40:]), keys[10:])
        self.assertEqual(self.remembered(second, *keys), keys[-MIN_ENTRIES:])

    def test_payingBack(self) -> None:
        """What is forgotten, pushed out and cleared is paid back."""
        budget = CacheBudget(1_000_000)
        cache = EnvelopeCache[Envelope](budget, entries=3)
        self.remembered(cache, b"a", b"bb", b"ccc", b"dddd")
        cache.forget(b"bb")
        self.assertEqual(budget.remaining, 1_000_000 - 2 * ENTRY_BYTES - 7)
        cache.clear()
        self.assertEqual((budget.remaining, cache.size, len(cache)), (1_000_000, 0, 0))

    @given(st.lists(st.tuples(st.booleans(), st.binary(max_size=6))), st.integers(1, 5), st.integers(1, 20))
    def test_always(self, steps: list[tuple[bool, bytes]], entries: int, size: int) -> None:
        """Whatever is remembered and forgotten: the bounds hold and the count is true."""
        cache = EnvelopeCache[Envelope](CacheBudget(), entries, size)
        for keeps, key in steps:
            if keeps:
                self.remembered(cache, key)
                self.assertEqual(key in cache, len(key) <= size)
            else:
                cache.forget(key)
                self.assertNotIn(key, cache)
            self.assertLessEqual(len(cache), entries)
            self.assertLessEqual(cache.size, size)
            self.assertEqual(cache.size, sum(map(len, cache)))
