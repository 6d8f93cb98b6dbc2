"""Header fields that are no text."""

from twisted.trial.unittest import SynchronousTestCase

from tests.fuzz.hostile import Batch
from tests.fuzz.tongues import HTTP
from tests.fuzz.world import World


class FieldTests(SynchronousTestCase):
    """Bytes that are no UTF-8, in the fields that the pages look at."""

    def test_hostileFieldsAreAnswered(self) -> None:
        """They are answered like any other; nothing goes wrong behind it."""
        world = World()
        self.addCleanup(world.close)
        for path in (b"/", b"/metrics", b"/healthz", b"/api/clients"):
            for name in (b"Host", b"Accept", b"Origin", b"Sec-Fetch-Site", b"Content-Type", b"Cookie"):
                for method in (b"GET", b"POST"):
                    said = b"%s %s HTTP/1.1\r\n%s: \x8d\xff\r\nContent-Length: 0\r\n\r\n" % (method, path, name)
                    world.say(HTTP, Batch(said, 1, True))
