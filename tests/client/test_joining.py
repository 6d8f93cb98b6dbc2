"""Every form of the FlexiMQ client and a broker that follows a script: admission, and the end of a connection."""

from typing import Any

from fleximq.client.errors import ConnectionLost, JoinRefused
from tests.client.cases import FormCase, inEveryForm
from tests.client.scripted import ID, Peer, Scripted


class Joining(FormCase):
    """The answer to a JOIN."""

    def refusedBy(self, script: Any, kind: type[Exception] = ConnectionLost) -> Any:
        """Return the error of a connection to this script."""
        with Scripted(script) as url:
            return self.assertRaises(kind, self.form.connect, url, timeout=0.5)

    def test_credentialsAndNameAreSent(self) -> None:
        """In the JOIN; the interval is the longest without PINGs. A client without messages ends without a flush."""
        frames: list[Any] = []

        def script(peer: Peer) -> None:
            frames.append(peer.hear("JOIN"))
            peer.say("REP", ID, {"status": 200})
            frames.extend(peer.untilEnd())

        with Scripted(script) as url:
            credentials = {"type": "api_key", "api_key": "k"}
            client = self.connectedTo(url, credentials=credentials, name="me", keep_alive=None)
            self.assertEqual(client.id, ID)
            client.close()
        join, ping = frames
        self.assertEqual(join.header, {"client_name": "me", "auth": credentials})
        self.assertEqual((ping.kind, ping.header["keepalive"]["interval"]), ("PING", 300))

    def test_refusalHasStatusAndWords(self) -> None:
        """As the broker gave them."""

        def script(peer: Peer) -> None:
            peer.hear("JOIN")
            peer.say("REP", 0, {"status": 401}, "credentials are missing")

        error = self.refusedBy(script, JoinRefused)
        self.assertEqual((error.status, str(error)), (401, "401 unauthorized: credentials are missing"))

    def test_noAnswerEndOrAnotherProtocolIsALostConnection(self) -> None:
        """The error says which."""
        other = b"SSH-2.0-OpenSSH_9.2p1 and a little more text\r\n"
        for script, words in (
            (lambda peer: peer.untilEnd(), "did not answer"),
            (lambda peer: peer.hear("JOIN"), "closed the connection"),
            (lambda peer: peer.stream.sendall(other), "not FlexiMQ"),
        ):
            self.assertIn(words, str(self.refusedBy(script)))


inEveryForm(globals(), Joining)
