"""Every rule that depends on time, with its deadline set to about a second, against one running broker."""

import re
import time
from collections.abc import Callable
from typing import Any

from tests.conversations.at_once import atOnce
from tests.conversations.case import Place, SocketCase
from tests.conversations.clients import (
    BlipClient,
    Delivery,
    Ended,
    FlexiClient,
    IdentityClient,
    MiniClient,
    Nack,
    Stream,
    WebSocketStream,
)
from tests.web_socket_client import CLOSE, PING, PONG

UNKNOWN = "unknown subscription or delivery tag"
#: What each deadline is set to, in seconds.
DEADLINE = 1.0
#: Queues live longer, so that they outlive their messages' deadlines.
EXPIRY = 2.5
#: How often a message is delivered before it is dead.
DELIVERIES = 2

HASTY = Place(
    *("--handshake-timeout", f"{DEADLINE}"),
    *("--keepalive", f"{DEADLINE}"),
    *("--redelivery", f"{DEADLINE}"),
    *("--max-deliveries", f"{DELIVERIES}"),
    *("--subscription-grace", f"{DEADLINE}"),
    *("--queue-expiry", f"{EXPIRY}"),
    *("--request-timeout", f"{DEADLINE}"),
)


class TimedCase(SocketCase):
    """A test of a broker in a hurry."""

    place = HASTY

    def setUp(self) -> None:
        """Begin to measure."""
        super().setUp()
        self.began = time.monotonic()

    def restart(self) -> None:
        """Measure from now on."""
        self.began = time.monotonic()

    def assertPassed(self, low: float, high: float) -> None:
        """Check how many seconds have passed; the upper bound has room for a busy machine."""
        passed = time.monotonic() - self.began
        self.assertTrue(low - 0.05 <= passed <= high + 5, f"{passed:.2f} s, not {low} to {high}")


@atOnce
class HandshakeTests(TimedCase):
    """Who does not introduce himself in time is shown the door."""

    def closed(self, dialect: str, data: bytes) -> bytes:
        """Return the answer to a connection that says this and no more, and is closed at the deadline."""
        stream = self.stream(dialect)
        self.restart()
        if data:
            stream.say(data)
        answer = stream.readAll()
        self.assertPassed(DEADLINE, DEADLINE)
        return answer

    def test_silence(self) -> None:
        """Nothing at all."""
        self.assertEqual(self.closed("fleximq", b""), b"")

    def test_halfWord(self) -> None:
        """A word that may become MiniMQ or HTTP."""
        self.assertEqual(self.closed("minimq", b"PRODU"), b"")

    def test_fleximq(self) -> None:
        """FlexiMQ: a JOIN that is not whole."""
        self.assertEqual(self.closed("fleximq", bytes([1]) + bytes(20)), b"")

    def test_blipmq(self) -> None:
        """BlipMQ: a HELLO is not enough."""
        client = self.opened(BlipClient(self.place.address("blipmq")))
        self.restart()
        client.hello()
        self.assertRaises(Ended, client.hear)
        self.assertPassed(DEADLINE, DEADLINE)

    def test_minimq(self) -> None:
        """MiniMQ: a line that does not end."""
        self.assertEqual(self.closed("minimq", b"PING:"), b"")

    def test_http(self) -> None:
        """HTTP: a head that does not end is answered with 408."""
        self.assertTrue(self.closed("identity", b"GET / HTTP/1.1\r\n").startswith(b"HTTP/1.1 408 "))

    def test_fleximqWs(self) -> None:
        """FlexiMQ over WebSocket: the upgrade alone is no JOIN."""
        carrier = self.opened(WebSocketStream(self.place.address("fleximq")))
        self.restart()
        self.assertEqual(carrier.read(), b"")
        self.assertEqual(carrier.code, 1008)
        self.assertPassed(DEADLINE, DEADLINE)

    def test_introduced(self) -> None:
        """Who did is left in peace, in every dialect."""
        blip, mini, identity = self.blip(), self.mini(), self.identity()
        flexi = self.flexi()
        mini.barrier()
        time.sleep(1.5 * DEADLINE)
        for each in (flexi, blip, mini, identity):
            self.assertEqual(each.barrier(), [])


@atOnce
class KeepAliveTests(TimedCase):
    """PINGs of the broker, and what happens to who does not answer them."""

    def silent(self, carrier: Any) -> None:
        """Join, then only listen: after one interval and two a PING, after three the end."""
        client = self.opened(FlexiClient(carrier, answersPings=False)).join()
        self.restart()
        heard = []
        for seconds in (DEADLINE, 2 * DEADLINE):
            heard.append(client.hear())
            self.assertPassed(seconds, seconds)
        self.assertEqual([(each.kind, each.sender) for each in heard], [("PING", 1)] * 2)
        self.assertEqual(heard[0].header["keepalive"].keys(), {"timestamp", "interval"})
        self.assertRaises(Ended, client.hear)
        self.assertPassed(3 * DEADLINE, 3 * DEADLINE)

    def answering(self, carrier: Any) -> None:
        """Join and answer PINGs: that keeps the connection."""
        client = self.opened(FlexiClient(carrier, answersPings=False)).join()
        for _ in range(4):
            heard = client.hear()
            self.assertEqual(heard.kind, "PING")
            client.tell("PONG", {"keepalive": {"timestamp": heard.header["keepalive"]["timestamp"]}})
        self.assertPassed(3.9 * DEADLINE, 4 * DEADLINE)
        self.assertEqual(client.barrier(), [])

    def test_silent(self) -> None:
        """A FlexiMQ client that says nothing is closed after three intervals."""
        self.silent(Stream(self.place.address("fleximq")))

    def test_silentWs(self) -> None:
        """So is one over WebSocket."""
        carrier = WebSocketStream(self.place.address("fleximq"))
        self.silent(carrier)
        self.assertEqual(carrier.code, 1001)

    def test_answering(self) -> None:
        """One that answers stays."""
        self.answering(Stream(self.place.address("fleximq")))

    def test_answeringWs(self) -> None:
        """So does one over WebSocket."""
        self.answering(WebSocketStream(self.place.address("fleximq")))

    def test_silentIdentity(self) -> None:
        """A browser that answers no WebSocket PING is closed too."""
        socket = self.identity().webSocket
        self.restart()
        kinds = [socket.receiveFrame()[0] for _ in range(3)]
        self.assertEqual(kinds, [PING, PING, CLOSE])
        self.assertPassed(3 * DEADLINE, 3 * DEADLINE)

    def test_answeringIdentity(self) -> None:
        """One that does stays."""
        client = self.identity()
        for _ in range(4):
            kind, payload = client.webSocket.receiveFrame()
            self.assertEqual(kind, PING)
            client.webSocket.sendFrame(PONG, payload)
        self.assertEqual(client.barrier(), [])

    def test_othersStay(self) -> None:
        """BlipMQ and MiniMQ know no keep-alive of the broker's: a silent client stays."""
        blip, mini = self.blip(), self.mini()
        mini.barrier()
        time.sleep(3.5 * DEADLINE)
        self.assertEqual((blip.barrier(), mini.barrier()), ([], []))


@atOnce
class RedeliveryTests(TimedCase):
    """Messages that are not acknowledged come again, and are dead in the end."""

    def again(self, ask: Callable[[], Any], nothing: Any = None) -> Any:
        """Return what a POLL or CONSUME brings, as soon as it brings something."""
        return self.eventually(lambda: (answer := ask()) != nothing and answer, "a message")

    def subscribed(self, *messages: bytes) -> tuple[BlipClient, int]:
        """Return a consumer and its subscription, in which these messages wait."""
        client = self.blip()
        subscription = client.subscribe(self.topic)
        for each in messages:
            client.publish(self.topic, each)
        client.barrier()
        return client, subscription

    def test_blipmq(self) -> None:
        """BlipMQ: same tags, same order, ahead of what was never delivered."""
        client, subscription = self.subscribed(b"1", b"2", b"3")
        self.restart()
        first = [client.poll(subscription) for _ in range(2)]
        found = [self.again(lambda: client.poll(subscription)) for _ in range(1)]
        self.assertEqual(found, [Delivery(3, 1, self.topic, b"3")])
        self.assertIsNone(client.poll(subscription))
        second = [self.again(lambda: client.poll(subscription)) for _ in range(3)]
        self.assertPassed(DEADLINE, DEADLINE)
        self.assertEqual(second, first + found)

    def test_blipmqAcknowledged(self) -> None:
        """BlipMQ: what was acknowledged does not come again, the rest does; a late ACK is taken."""
        client, subscription = self.subscribed(b"1", b"2", b"3")
        tags = [client.poll(subscription).tag for _ in range(3)]
        client.ack(tags[1], subscription)
        time.sleep(1.2 * DEADLINE)
        client.ack(tags[2], subscription)
        self.assertEqual(client.barrier(), [])
        self.assertEqual(client.poll(subscription).message, b"1")
        self.assertIsNone(client.poll(subscription))

    def test_minimq(self) -> None:
        """MiniMQ: in their order, ahead of what was never delivered, to whoever asks."""
        one, two = self.mini(), self.mini()
        two.barrier()
        for id in "123":
            one.produce(self.topic, id, "x")
        self.restart()
        first = [one.consume(self.topic) for _ in range(2)]
        time.sleep(1.2 * DEADLINE)
        self.assertEqual([two.consume(self.topic) for _ in range(2)], first)
        self.assertTrue(two.consume(self.topic).startswith("3:::"))

    def test_minimqNotBefore(self) -> None:
        """MiniMQ: not before the deadline."""
        client = self.mini()
        client.produce(self.topic, "1", "x")
        self.restart()
        first = client.consume(self.topic)
        self.assertEqual(self.again(lambda: client.consume(self.topic), "NO_MSG"), first)
        self.assertPassed(DEADLINE, DEADLINE)

    def test_minimqLateAck(self) -> None:
        """MiniMQ: an ACK after the deadline, from another connection, still removes the message."""
        one, two = self.mini(), self.mini()
        two.barrier()
        one.produce(self.topic, self.topic, "x")
        one.consume(self.topic)
        time.sleep(1.2 * DEADLINE)
        two.ack(self.topic).barrier()
        self.assertEqual(one.consume(self.topic), "NO_MSG")

    def test_minimqDead(self) -> None:
        """MiniMQ: after the last delivery a message is in ``$dead/<topic>``, for consumers and for subscribers."""
        client, dead = self.mini(), f"$dead/{self.topic}"
        watcher = self.flexi().subscribe(dead)
        watcher.barrier()
        client.produce(self.topic, "1", "x", "c", "r")
        for _ in range(DELIVERIES):
            self.again(lambda: client.consume(self.topic), "NO_MSG")
        self.assertEqual(self.again(lambda: client.consume(dead), "NO_MSG"), f"1:::{dead}:::x:::c:::r")
        self.assertPassed(DELIVERIES * DEADLINE, DELIVERIES * DEADLINE)
        self.assertEqual(client.consume(self.topic), "NO_MSG")
        told = watcher.hear()
        self.assertEqual((told.sender, told.value), (1, "x"))
        ids = {"message_id": "1", "correlation_id": "c", "reply_to": "r"}
        self.assertEqual(told.header, {"topic": dead} | ids)

    def test_blipmqDead(self) -> None:
        """BlipMQ: the same, with bytes; nothing dead dies twice."""
        client, subscription = self.subscribed(b"\xff\x00")
        dead = f"$dead/{self.topic}"
        deadSubscription = client.subscribe(dead)
        watcher = self.flexi().subscribe(dead)
        watcher.barrier()
        for _ in range(DELIVERIES):
            self.again(lambda: client.poll(subscription))
        found = self.again(lambda: client.poll(deadSubscription))
        self.assertEqual((found.topic, found.message), (dead, b"\xff\x00"))
        self.assertIsNone(client.poll(subscription))
        self.assertEqual(watcher.hear().value, b"\xff\x00")
        mini = self.mini()
        line = mini.consume(dead)
        self.assertEqual(line.split(":::")[1:], [dead, "/wA=", "", ""])
        for _ in range(DELIVERIES + 1):  # once more than kills elsewhere
            self.assertEqual(self.again(lambda: mini.consume(dead), "NO_MSG"), line)

    def test_counted(self) -> None:
        """A dead letter is counted."""
        client = self.mini()
        client.produce(self.topic, "1", "x")
        for _ in range(DELIVERIES):
            self.again(lambda: client.consume(self.topic), "NO_MSG")
        self.again(lambda: client.consume(f"$dead/{self.topic}"), "NO_MSG")
        self.assertTrue([name for name, number in self.counts().items() if "dead" in name and number])


@atOnce
class GraceTests(TimedCase):
    """BlipMQ subscriptions outlive their connections for a while."""

    def left(self) -> int:
        """Return a subscription with one message whose connection is gone."""
        client = self.blip(self.topic)
        subscription = client.subscribe(self.topic)
        client.publish(self.topic, b"kept").barrier()
        client.close()
        return subscription

    def test_kept(self) -> None:
        """Within the grace time another connection of the same key goes on, and keeps the subscription from then on."""
        subscription = self.left()
        time.sleep(0.4 * DEADLINE)
        client = self.blip(self.topic)
        found = client.poll(subscription)
        self.assertEqual(found, Delivery(1, 1, self.topic, b"kept"))
        self.assertEqual(client.ack(1, subscription).barrier(), [])
        time.sleep(1.5 * DEADLINE)
        self.assertIsNone(client.poll(subscription))
        client.publish(self.topic, b"new").barrier()
        self.assertEqual(client.poll(subscription).message, b"new")

    def test_over(self) -> None:
        """After it there is no such subscription."""
        subscription = self.left()
        time.sleep(1.4 * DEADLINE)
        self.assertEqual(self.blip(self.topic).poll(subscription), Nack(50, 404, UNKNOWN))

    def test_otherKey(self) -> None:
        """Another key is told the same at any time, and keeps nothing alive."""
        subscription = self.left()
        stranger = self.blip(f"not {self.topic}")
        for _ in range(3):
            self.assertEqual(stranger.poll(subscription), Nack(50, 404, UNKNOWN))
            time.sleep(0.5 * DEADLINE)
        self.assertEqual(self.blip(self.topic).poll(subscription), Nack(50, 404, UNKNOWN))


@atOnce
class ExpiryTests(TimedCase):
    """MiniMQ queues that nobody consumes go."""

    def queued(self, client: FlexiClient) -> Any:
        """Return how many messages wait in the topic's queue, None if there is none."""
        rows = client.ask("/broker/topics", {"after": self.topic[:-1], "limit": 1})["topics"]
        return rows[0]["queued"] if rows and rows[0]["topic"] == self.topic else None

    def test_unused(self) -> None:
        """A queue without a CONSUME expires with its messages, however many are put in."""
        watcher, mini = self.flexi(), self.mini()
        mini.produce(self.topic, "1", "x")
        self.assertEqual(self.queued(watcher), 1)
        for _ in range(3):
            time.sleep(0.2 * EXPIRY)
            mini.produce(self.topic, "2", "x")
        self.assertEqual(self.queued(watcher), 4)
        self.eventually(lambda: self.queued(watcher) is None, "the queue to expire")
        self.assertPassed(EXPIRY, EXPIRY)
        self.assertEqual(mini.consume(self.topic), "NO_MSG")

    def test_used(self) -> None:
        """A queue that is consumed stays."""
        mini = self.mini()
        for _ in range(4):
            mini.consume(self.topic)
            time.sleep(0.4 * EXPIRY)
        self.flexi().publish(self.topic, "x").barrier()
        self.assertEqual(mini.consume(self.topic).split(":::")[2:], ["x", "", ""])


@atOnce
class RequestTests(TimedCase):
    """REQs that nobody answers."""

    def asked(self) -> tuple[FlexiClient, FlexiClient]:
        """Return a requester and a responder that has its REQ."""
        alice, bob = self.flexi(), self.flexi()
        self.restart()
        alice.request(bob.id, "/slow", "R")
        self.assertEqual(bob.hear().kind, "REQ")
        return alice, bob

    def test_timeout(self) -> None:
        """Without an answer in time the requester gets REP 504, once."""
        alice, bob = self.asked()
        heard = alice.hear()
        self.assertPassed(DEADLINE, DEADLINE)
        self.assertError(heard, alice, 504, "R")
        bob.reply(alice.id, "R", "late").barrier()
        self.assertEqual([each.value for each in alice.barrier()], ["late"])

    def test_answered(self) -> None:
        """An answer in time is the only one."""
        alice, bob = self.asked()
        bob.reply(alice.id, "R", "here").barrier()
        time.sleep(1.3 * DEADLINE)
        self.assertEqual([each.value for each in alice.barrier()], ["here"])

    def test_leaves(self) -> None:
        """A responder that leaves: REP 502 at once, and no 504 later."""
        alice, bob = self.asked()
        bob.close()
        self.assertError(alice.hear(), alice, 502, "R")
        time.sleep(1.3 * DEADLINE)
        self.assertEqual(alice.barrier(), [])


@atOnce
class CountTests(TimedCase):
    """Ends by deadlines are counted with their reason."""

    def test_counted(self) -> None:
        """Handshakes that came too late and clients that fell silent."""
        self.stream("fleximq").readAll()
        stream = self.stream("fleximq")
        stream.say(bytes([1]))
        stream.readAll()
        client = self.opened(IdentityClient(self.place.address("identity")))
        while client.webSocket.receiveFrame()[0] != CLOSE:
            pass
        client.close()
        wanted = ("refused: said too little", "not let in: handshake deadline", "left: keep-alive")
        self.eventually(
            lambda: all(any(re.match(each, name) for name in self.counts()) for each in wanted), f"counts of {wanted}"
        )

    def test_slowConsumeWait(self) -> None:
        """A CONSUME without ``--consume-wait`` is answered at once."""
        client = MiniClient(self.place.address("minimq"))
        with client:
            self.restart()
            client.consume(self.topic)
            self.assertPassed(0, 0)
