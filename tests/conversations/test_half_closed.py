"""Peers that end their input and still listen, as ``printf ... | nc -N`` does."""

from tests.conversations.case import SocketCase
from tests.conversations.clients import Stream


class HalfClosedTests(SocketCase):
    """All that was asked is answered, then the broker closes."""

    def whole(self, address: tuple[str, int] | str, said: bytes) -> bytes:
        """Return all that comes when this is said and the input ended at once."""
        stream = self.opened(Stream(address))
        stream.say(said)
        stream.endInput()
        return stream.readAll()

    def addresses(self) -> list[tuple[str, int] | str]:
        """Return where to find the broker, by TCP and by UNIX socket."""
        return [self.place.address("fleximq"), self.place.unixAddress]

    def test_minimqAnswersBothQuestions(self) -> None:
        """MiniMQ: both answers come."""
        for address in self.addresses():
            topic = f"{self.topic}.{len(address)}{type(address).__name__}"
            said = f"PRODUCE:1:::{topic}:::x::::::\nCONSUME:{topic}\n"
            self.assertEqual(self.whole(address, said.encode()).decode(), f"1\n1:::{topic}:::x::::::\n")

    def test_httpAnswersWithPage(self) -> None:
        """HTTP: the page comes."""
        for address in self.addresses():
            answer = self.whole(address, b"GET / HTTP/1.0\r\n\r\n")
            self.assertIn(b" 200 OK\r\n", answer)
            self.assertIn(b"FlexiMQ", answer)

    def test_postsAreAnswered(self) -> None:
        """HTTP: all answers come."""
        for address in self.addresses():
            post = f"POST /topics/{self.topic} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx".encode()
            answer = self.whole(address, post * 3)
            self.assertEqual(answer.count(b"HTTP/1.1 200 OK\r\n"), 3)

    def test_answerThatDoesNotFitSocketsBuffersComesWhole(self) -> None:
        """An answer that does not fit the sockets' buffers comes whole."""
        content = "x" * 8_000_000
        self.mini().produce(self.topic, "big", content)
        answer = self.whole(self.place.address("minimq"), f"CONSUME:{self.topic}\n".encode())
        self.assertEqual(answer.decode(), f"big:::{self.topic}:::{content}::::::\n")

    def test_200PeersAtOnceAllGetTheirAnswers(self) -> None:
        """200 peers at once all get their answers."""
        said = f"PRODUCE:{{0}}:::{self.topic}.{{0}}:::x::::::\nCONSUME:{self.topic}.{{0}}\n"
        streams = [self.opened(Stream(self.addresses()[number % 2])) for number in range(200)]
        for number, stream in enumerate(streams):
            stream.say(said.format(number).encode())
            stream.endInput()
        answered = [stream.readAll().decode() for stream in streams]
        wanted = [f"{n}\n{n}:::{self.topic}.{n}:::x::::::\n" for n in range(200)]
        self.assertEqual(answered, wanted)
