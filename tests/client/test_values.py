"""Values by keys in every form of the client, with the real broker."""

import threading
from datetime import timedelta
from typing import Any

from fleximq.client.errors import ConnectionLost, RequestFailed
from fleximq.client.payloads import Packed
from tests.client.cases import FormCase, Place, inEveryForm

_durable = Place(lambda: ("--journal", "journal"))


class Values(FormCase):
    """Two clients."""

    def connected(self, **options: Any) -> Any:
        """Return a client."""
        return self.connectedTo(f"tcp://127.0.0.1:{_durable.broker.port()}", **options)

    def setUp(self) -> None:
        """Connect."""
        super().setUp()
        self.one, self.two = self.connected(), self.connected()

    def refused(self, status: int, call: Any, *arguments: Any, **options: Any) -> None:
        """Check that a call is refused with this status."""
        error = self.assertRaises(RequestFailed, call, *arguments, **options)
        self.assertEqual(error.status, status)

    def test_whatOnePutsAnotherGets(self) -> None:
        """Any value of MessagePack, with its revision; None if there is none."""
        value = {"a": [1, b"x", None], "b": "ü"}
        revision = self.one.put_value(self.topic, value)
        found = self.two.get_value(self.topic)
        self.assertEqual((found.value, found.revision), (value, revision))
        self.assertTrue(self.two.delete_value(self.topic))
        self.assertIsNone(self.one.get_value(self.topic))
        self.assertFalse(self.one.delete_value(self.topic))

    def test_payloadsThatArePackedAlready(self) -> None:
        """Are stored as they are."""
        self.one.put_value(self.topic, Packed(b"\xc1not MessagePack"))
        self.assertEqual(self.two.get_value(self.topic).payload, b"\xc1not MessagePack")

    def test_revisions(self) -> None:
        """A change that is based on a former value is refused."""
        revision = self.one.put_value(self.topic, 1, if_revision=0)
        self.refused(409, self.two.put_value, self.topic, 2, if_revision=0)
        self.assertGreater(self.two.put_value(self.topic, 2, if_revision=revision), revision)
        self.refused(409, self.one.delete_value, self.topic, if_revision=revision)
        self.assertEqual(self.one.get_value(self.topic).value, 2)

    def test_sums(self) -> None:
        """Of two clients."""
        sums = [each.add_to_value(self.topic, 2) for each in (self.one, self.two, self.one)]
        self.assertEqual([*sums, self.two.add_to_value(self.topic)], [2, 4, 6, 7])
        self.one.put_value(self.topic, "text")
        self.refused(409, self.two.add_to_value, self.topic)

    def test_manyKeys(self) -> None:
        """More than one request can have."""
        keys = [f"{self.topic}/{number}" for number in range(1500)]
        for number in (0, 999, 1000, 1499):
            self.one.put_value(keys[number], number, expires=timedelta(hours=1))
        found = self.two.get_values(keys)
        self.assertEqual({key: each.value for key, each in found.items()}, {keys[n]: n for n in (0, 999, 1000, 1499)})
        self.assertRaises(ValueError, self.two.get_values, keys, wait=1)
        self.assertEqual(self.one.count_values(f"{self.topic}/"), 4)
        self.assertEqual([len(self.one.values(prefix=f"{self.topic}/1")), self.one.delete_values(keys)], [2, 4])

    def test_longKeys(self) -> None:
        """More bytes than one request can have."""
        keys = [f"{self.topic}/{number}/{'k' * 900}" for number in range(200)]
        self.one.put_value(keys[-1], 1)
        self.assertEqual(list(self.two.get_values(keys)), keys[-1:])
        self.assertEqual(self.two.delete_values(keys), 1)

    def test_wait(self) -> None:
        """For a value, and for a newer one."""
        putting = threading.Timer(0.05, self.one.put_value, (self.topic, "first"))
        putting.start()
        self.addCleanup(putting.join)
        found = self.two.get_value(self.topic, wait=60)
        self.assertEqual(found.value, "first")
        self.assertIsNone(self.two.get_value(self.topic, after=found.revision, wait=0.01))
        again = threading.Timer(0.05, self.one.put_value, (self.topic, "second"))
        again.start()
        self.addCleanup(again.join)
        self.assertEqual(self.two.get_value(self.topic, after=found.revision, wait=60).value, "second")

    def test_expiry(self) -> None:
        """The list says when; then nothing is there."""
        self.one.put_value(self.topic, 1, expires=3600)
        [row] = [each for each in self.two.values() if each["key"] == self.topic]
        self.assertGreater(row["expires"], 1_000_000_000_000)
        self.one.put_value(self.topic, 2, expires=0.001)
        while self.one.get_value(self.topic) is not None:
            pass

    def test_aClosedClient(self) -> None:
        """Says so."""
        self.one.close()
        self.assertRaises(ConnectionLost, self.one.get_value, self.topic)


inEveryForm(globals(), Values)
