"""The bytes that the benchmark sends by plain HTTP, and the answers that it takes for complete."""

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.http import HttpFlexiMQ, isWhole


class RequestTests(SynchronousTestCase):
    """Requests and responses."""

    def test_aPublicationIsAPost(self) -> None:
        said = HttpFlexiMQ().publication(None, b"bench.1", b"Hi")
        self.assertTrue(said.startswith(b"POST /topics/bench.1 HTTP/1.1\r\n"))
        self.assertTrue(said.endswith(b"Content-Length: 2\r\n\r\nHi"))

    def test_aResponseIsWholeWithItsBody(self) -> None:
        whole = b"HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\nX: y\r\n\r\nok"
        self.assertEqual([size for size in range(len(whole) + 1) if isWhole(whole[:size])], [len(whole)])
        self.assertTrue(isWhole(b"HTTP/1.1 204 No Content\r\n\r\n"))

    def test_errorsAndSeveralResponsesAreNot(self) -> None:
        for said in (b"HTTP/1.1 400 Bad\r\nContent-Length: 0\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\nmore"):
            self.assertFalse(isWhole(said))
