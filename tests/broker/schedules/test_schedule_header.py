"""The headers of records of schedules."""

from array import array

import msgpack
from twisted.trial.unittest import SynchronousTestCase

from fleximq.broker.schedules.schedule_header import dueOf, publicationOf, waitingColumns, waitingHeader

#: Headers without a pair, with a short map and with a long one.
HEADERS = [b"", msgpack.packb({"a": 1}), msgpack.packb({f"{number}": "v" * 40 for number in range(20)})]


class ColumnsTests(SynchronousTestCase):
    """Due times and principals of many records at once."""

    def test_sameAsOfEach(self) -> None:
        """Of several topics and principals, neighbours or not."""
        waiting = [
            waitingHeader(header, topic, principal, due)
            for due, principal in ((5, None), (1 << 40, "ann"), (5, "bob"))
            for topic in ("t", "u" * 300)
            for header in HEADERS
        ]
        dues, principals = waitingColumns(waiting)
        self.assertEqual(dues, array("Q", map(dueOf, waiting)))
        self.assertEqual(principals, [publicationOf(each).principal for each in waiting])
        self.assertEqual(set(principals), {None, "ann", "bob"})
