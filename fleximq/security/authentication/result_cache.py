"""Caches recent results of checks, without storing the secrets.

Secrets are hashed with a random key of each cache, so its content is useless outside this process. Bounded; the oldest
entries are removed first.
"""

import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

#: Maximum number of entries.
MAX_RESULTS = 10_000

T = TypeVar("T")


class ResultCache(Generic[T]):
    """Stores results; ``now`` returns the time, and ``lasting`` is the lifetime of an entry, in seconds."""

    def __init__(self, now: Callable[[], float], lasting: float, most: int = MAX_RESULTS) -> None:
        self._now, self._lasting, self._most = now, lasting, most
        self._key = secrets.token_bytes(32)
        self._kept: OrderedDict[bytes, tuple[float, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, *shown: str) -> T | None:
        """Return the value stored for these texts, None if there is none or it has expired."""
        key = self._hash(shown)
        until, value = self._kept.get(key, (0.0, None))
        if value is None:
            return None
        if until > self._now():
            return value
        del self._kept[key]
        return None

    def put(self, value: T, *shown: str, lasting: float | None = None) -> None:
        """Store a value for these texts. ``lasting``: its lifetime in seconds, if shorter than that of the cache."""
        lasting = self._lasting if lasting is None else min(lasting, self._lasting)
        key = self._hash(shown)
        self._kept.pop(key, None)
        if lasting <= 0:
            return
        self._kept[key] = (self._now() + lasting, value)
        if len(self._kept) > self._most:
            self._kept.popitem(last=False)

    def _hash(self, shown: tuple[str, ...]) -> bytes:
        taken = hashlib.blake2b(key=self._key, digest_size=32)
        for each in shown:
            spelled = each.encode(errors="surrogatepass")
            taken.update(len(spelled).to_bytes(8, "big"))
            taken.update(spelled)
        return taken.digest()
