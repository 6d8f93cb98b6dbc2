"""MiniMQ as a client sees it (MiniMQ document and docs/reference/dialects.rst)."""

import threading

from tests.conversations.case import SocketCase, onOwnListeners
from tests.conversations.clients import Ended


class QueueTests(SocketCase):
    """PRODUCE, CONSUME and ACK."""

    def setUp(self) -> None:
        """Two clients."""
        super().setUp()
        self.one, self.two = self.mini(), self.mini()

    def test_ping(self) -> None:
        """PING is answered by PONG."""
        self.assertEqual(self.one.ask("PING:"), "PONG:")

    def test_nothing(self) -> None:
        """CONSUME of an unknown and of an empty topic says so at once."""
        self.assertEqual([self.one.consume(self.topic) for _ in range(2)], ["NO_MSG"] * 2)

    def test_roundTrip(self) -> None:
        """PRODUCE is answered by the id, CONSUME by the message as it was given."""
        self.assertEqual(self.one.produce(self.topic, "1-a", "This is a test."), "1-a")
        self.assertEqual(self.two.consume(self.topic), f"1-a:::{self.topic}:::This is a test.::::::")

    def test_allFields(self) -> None:
        """CorrelationID and ReplyTo travel."""
        self.one.produce(self.topic, "2", "hello", "333-ccc", "reply.x")
        self.assertEqual(self.two.consume(self.topic), f"2:::{self.topic}:::hello:::333-ccc:::reply.x")

    def test_inFlight(self) -> None:
        """A message in flight is not given to anybody else."""
        self.one.produce(self.topic, "1", "x")
        self.two.consume(self.topic)
        self.assertEqual((self.one.consume(self.topic), self.two.consume(self.topic)), ("NO_MSG", "NO_MSG"))

    def test_disconnect(self) -> None:
        """A disconnect does not put a message in flight back before its time."""
        self.one.produce(self.topic, "1", "x")
        self.two.consume(self.topic)
        clients = self.counts().get("left: client closed", 0)
        self.two.close()
        self.eventually(lambda: self.counts().get("left: client closed", 0) > clients, "the broker to notice")
        self.assertEqual(self.one.consume(self.topic), "NO_MSG")

    def test_ackIsSilent(self) -> None:
        """ACK is never answered, whatever it says."""
        id = self.one.produce(self.topic, self.topic, "x")
        self.two.consume(self.topic)
        self.one.line(f"ACK:{id}", f"ACK:{id}", "ACK:nobody", "ACK:", "ACK:a:::b").say(b"ACK:\xff\n")
        self.assertEqual(self.one.barrier(), [])

    def test_contents(self) -> None:
        """Contents come back byte for byte."""
        for content in ("a:b::c", "a:::b", ":::", "你好é", '{"k":"v:1"}', "", "trailing  ", "tab\there"):
            self.assertEqual(self.one.produce(self.topic, "i", content), "i")
            self.assertEqual(self.two.consume(self.topic), f"i:::{self.topic}:::{content}::::::")

    def test_crlf(self) -> None:
        """CRLF ends a line too."""
        self.assertEqual(self.one.ask(f"PRODUCE:cr:::{self.topic}:::x::::::\r"), "cr")
        self.assertEqual(self.two.ask(f"CONSUME:{self.topic}\r"), f"cr:::{self.topic}:::x::::::")

    def test_padded(self) -> None:
        """Three and four fields come back as five."""
        for fields in ("i:::{}:::x", "i:::{}:::x:::c"):
            self.one.ask("PRODUCE:" + fields.format(self.topic))
        self.assertEqual(self.two.consume(self.topic), f"i:::{self.topic}:::x::::::")
        self.assertEqual(self.two.consume(self.topic), f"i:::{self.topic}:::x:::c:::")

    def test_legacy(self) -> None:
        """``topic:content`` gets an id and comes back as three fields."""
        id = self.one.ask(f"PRODUCE:{self.topic}:old: style")
        self.assertEqual(self.two.consume(self.topic), f"{id}:::{self.topic}:::old: style")

    def test_sameId(self) -> None:
        """Of messages with one id both are kept; an ACK removes one."""
        self.one.produce(self.topic, "1", "a")
        self.one.produce(self.topic, "1", "b")
        self.assertEqual(
            [self.two.consume(self.topic) for _ in range(3)],
            [f"1:::{self.topic}:::a::::::", f"1:::{self.topic}:::b::::::", "NO_MSG"],
        )

    def test_pipelined(self) -> None:
        """500 pipelined PRODUCEs are answered in order; two consumers share them in order, none twice."""
        topic, number = self.topic, 500
        self.one.line(*(f"PRODUCE:p{n}:::{topic}:::{n}::::::" for n in range(number)))
        self.assertEqual(self.one.barrier(), [f"p{n}" for n in range(number)])
        shared = [client.consume(topic) for _ in range(number // 2) for client in (self.one, self.two)]
        self.assertEqual(shared, [f"p{n}:::{topic}:::{n}::::::" for n in range(number)])

    def test_pipelinedMixture(self) -> None:
        """Commands of all kinds are answered in their order."""
        topic = self.topic
        self.one.line(f"CONSUME:{topic}", f"PRODUCE:1:::{topic}:::x::::::", "PING:", f"CONSUME:{topic}", "NO", "ACK:1")
        self.assertEqual([self.one.hear() for _ in range(4)], ["NO_MSG", "1", "PONG:", f"1:::{topic}:::x::::::"])
        self.assertTrue(self.one.hear().startswith("ERROR:400:"))
        self.assertEqual(self.one.barrier(), [])

    def test_longLine(self) -> None:
        """A line of 1 MB is carried."""
        big = "x" * 1_000_000
        self.assertEqual(self.one.produce(self.topic, "big", big), "big")
        self.assertEqual(self.two.consume(self.topic), f"big:::{self.topic}:::{big}::::::")


class ErrorTests(SocketCase):
    """What is refused."""

    def test_lines(self) -> None:
        """Each wrong line gets one ERROR:400, and the connection lives on."""
        client = self.mini()
        for line in (
            "FOO:bar",
            "hello",
            "",
            "PRODUCE:garbage",
            "PRODUCE:",
            "PRODUCE:a:::b",
            "PRODUCE:::::t:::x::::::",
            "PRODUCE:i::::::x::::::",
            "PRODUCE:NO_MSG:::t:::x::::::",
            "PRODUCE:ERROR1:::t:::x::::::",
            "ping:",
            "CONSUME:",
            "CONSUME:a:::b",
            f"CONSUME:{'x' * 1025}",
        ):
            [answer] = client.line(line).barrier()
            self.assertTrue(answer.startswith("ERROR:400:"), (line, answer))

    def test_notUtf8(self) -> None:
        """A line that is not UTF-8 gets ERROR:400."""
        client = self.mini()
        client.say(b"PRODUCE:u:::t:::\xff\xfe::::::\n")
        [answer] = client.barrier()
        self.assertTrue(answer.startswith("ERROR:400:"), answer)

    def test_tooLong(self) -> None:
        """A line over 16 MiB gets ERROR:400 and the end, before its own end has come."""
        client = self.mini()
        client.barrier()
        threading.Thread(target=client.say, args=(b"PRODUCE:" + bytes(16 << 20),), daemon=True).start()
        self.assertTrue(client.hear().startswith("ERROR:400:"))
        self.assertRaises(Ended, client.hear)

    def test_ownTopics(self) -> None:
        """Only the broker publishes to ``$sys/`` and ``$dead/``: ERROR:403."""
        for topic in ("$sys/x", "$dead/x"):
            self.assertTrue(self.mini().produce(topic, "i", "x").startswith("ERROR:403:"))


globals().update(onOwnListeners(QueueTests, ErrorTests))
