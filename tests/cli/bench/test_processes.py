"""Stamps of messages."""

import time

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.bench.processes import STAMP_BYTES, age, stamp


class StampTests(SynchronousTestCase):
    """What is told, and what is understood."""

    def test_age(self) -> None:
        """A message is as old as its stamp says, also where the told part of the clock began anew."""
        found = stamp()
        self.assertEqual(len(found), STAMP_BYTES)
        self.assertTrue(found.isascii() and b":" not in found and b"\n" not in found)
        self.assertTrue(0 <= age(found + b"xyz", time.monotonic_ns()) < 10**10)
        self.assertEqual(age(b"////////", 4), 5)
