"""Headers of direct messages that differ in the request's id only."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.dialects.connection.envelope_cache import MIN_ENTRIES, CacheBudget
from fleximq.dialects.fleximq.direct_cache import Direct, DirectCache
from tests.dialects.flexi_peer import FlexiCase
from tests.wire.flexi_frames import frame


def request(id: str, target: int = 1001, path: str = "/api") -> bytes:
    """Return the envelope of a REQ."""
    header = {"routing": [{"client_id": target, "path": path}], "reqrep": {"type": "request", "id": id}}
    return frame("REQ", 1000, header)[:-8]


class CacheTests(SynchronousTestCase):
    """The cache alone."""

    def setUp(self) -> None:
        """Remember one."""
        self.cache = DirectCache(CacheBudget())
        self.cache.remember(request("id-1"), 1001, "/api", "id-1")

    def test_otherId(self) -> None:
        """Another id of the same length is found, with what the header means."""
        found = self.cache.find(request("id-2"))
        assert found is not None
        known, id = found
        self.assertEqual((known.kind, known.target, known.path, id), (1, 1001, "/api", "id-2"))
        self.assertIsInstance(known, Direct)

    def test_otherwiseDifferent(self) -> None:
        """Any other difference has to be read: length of the id, target, path, type."""
        for other in (request("id-10"), request("id-2", target=1002), request("id-2", path="/apj")):
            self.assertIsNone(self.cache.find(other))
        self.assertIsNone(self.cache.find(request("id-2").replace(b"\x01\x01", b"\x01\x02", 1)))

    def test_notUtf8(self) -> None:
        """An id that is not UTF-8 has to be read, and refused."""
        self.assertIsNone(self.cache.find(request("id-2").replace(b"id-2", b"id-\xff")))

    def test_ambiguous(self) -> None:
        """Where the id's bytes stand in the header twice, nothing is remembered; nor for an empty id."""
        cache = DirectCache(CacheBudget())
        cache.remember(request("api"), 1001, "/api", "api")
        cache.remember(request(""), 1001, "/api", "")
        self.assertEqual((cache.find(request("xyz")), cache.find(request(""))), (None, None))

    def test_overlapping(self) -> None:
        """So it is where they overlap: an id may look like the length that stands before it."""
        cache = DirectCache(CacheBudget())
        id = "\u0640" * 64  # its bytes are D9 80, which also stand before a string of 128 bytes
        cache.remember(request(id), 1001, "/api", id)
        self.assertIsNone(cache.find(request(id).replace(b"\xd9\x80" * 64, b"x" * 128, 1)))

    def test_long(self) -> None:
        """Long envelopes are not remembered."""
        cache = DirectCache(CacheBudget())
        cache.remember(request("id-1", path="x" * 1100), 1001, "x" * 1100, "id-1")
        self.assertIsNone(cache.find(request("id-2", path="x" * 1100)))

    def test_bounded(self) -> None:
        """It begins anew when it is full, and never holds more than its bound."""
        for target in range(2000, 2600):
            self.cache.remember(request("id-1", target=target), target, "/api", "id-1")
            self.assertLessEqual(len(self.cache._known), 256)
        self.assertIsNone(self.cache.find(request("id-2")))
        self.assertIsNotNone(self.cache.find(request("id-2", target=2599)))

    def test_emptyPurse(self) -> None:
        """When the purse that connections share is empty, a few are held; all is paid back."""
        budget = CacheBudget(1000)
        cache = DirectCache(budget)
        for target in range(2000, 2100):
            cache.remember(request("id-1", target=target), target, "/api", "id-1")
            self.assertLessEqual(len(cache._known), MIN_ENTRIES)
        self.assertIsNotNone(cache.find(request("id-2", target=2099)))
        cache.clear()
        self.assertEqual((budget.remaining, cache.find(request("id-2", target=2099))), (1000, None))

    @given(st.text(max_size=40), st.text(max_size=40), st.text(max_size=8))
    def test_anyId(self, first: str, second: str, path: str) -> None:
        """Whatever is found is what reading the header would have found."""
        cache = DirectCache(CacheBudget())
        cache.remember(request(first, path=path), 1001, path, first)
        found = cache.find(request(second, path=path))
        if found is not None:
            self.assertEqual((found[0].target, found[0].path, found[1]), (1001, path, second))


class ConversationTests(FlexiCase):
    """Repeated requests and answers."""

    def test_manyRequests(self) -> None:
        """Each is forwarded and answered like the first, and the last responder's leaving fails what is open."""
        asker, service = self.server.join(), self.server.join()
        for number in range(5):
            route = [{"client_id": service.id, "path": "/x"}]
            asker.send("REQ", {"routing": route, "reqrep": {"type": "request", "id": f"id-{number}"}}, bytes([number]))
            [heard] = service.messages()
            self.assertEqual((heard.kind, heard.header["reqrep"]["id"]), ("REQ", f"id-{number}"))
            answer = {"routing": [{"client_id": asker.id}], "reqrep": {"type": "correlation", "id": f"id-{number}"}}
            service.send("REP", answer, bytes([number]))
            [heard] = asker.messages()
            self.assertEqual((heard.kind, heard.sender, heard.payload), ("REP", service.id, bytes([number])))
        asker.send("REQ", {"routing": route, "reqrep": {"type": "request", "id": "id-9"}})
        service.leave()
        [heard] = asker.messages()
        self.assertEqual((heard.header["status"], heard.header["reqrep"]["id"]), (502, "id-9"))
        asker.send("REQ", {"routing": route, "reqrep": {"type": "request", "id": "id-8"}})
        [heard] = asker.messages()
        self.assertEqual((heard.header["status"], heard.header["reqrep"]["id"]), (600, "id-8"))
