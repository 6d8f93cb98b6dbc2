"""Requests one at a time on several connections, answered by a server in a thread."""

import socket
import threading

from twisted.trial.unittest import SynchronousTestCase

from benchmarks.peers.http import request
from benchmarks.peers.line import Line
from benchmarks.refused import Refused
from benchmarks.work.posts import postAll


class Server:
    """Answers each request on its first two connections with this."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self.requests: list[bytes] = []
        self._threads = [threading.Thread(target=self._serve) for _ in "ab"]
        for each in self._threads:
            each.start()

    def _serve(self) -> None:
        connected, _ = self._listening.accept()
        with connected:
            while found := connected.recv(1000):
                self.requests.append(found)
                connected.sendall(self._answer)

    def stop(self) -> None:
        for each in self._threads:
            each.join()
        self._listening.close()


class PostTests(SynchronousTestCase):
    """What is sent, and what is refused."""

    block = request("POST", b"/topics/a", b"x")

    def post(self, answer: bytes) -> list[bytes]:
        server = Server(answer)
        self.addCleanup(server.stop)
        with Line(server.port) as one, Line(server.port) as other:
            self.assertGreater(postAll([one, other], self.block, 7), 0)
        return server.requests

    def test_eachIsAnsweredBeforeTheNextOne(self) -> None:
        self.assertEqual(self.post(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"), [self.block] * 7)

    def test_errorsAreRefused(self) -> None:
        error = self.assertRaises(Refused, self.post, b"HTTP/1.1 503 Full\r\n\r\n" + b"x" * 5000)
        self.assertIn("503 Full", str(error))
