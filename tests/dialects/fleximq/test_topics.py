"""FlexiMQ topics: PUB, SUB, UNSUB, wildcards, narrowed publications, the broker's own topics."""

from typing import Any

import msgpack

from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.limits import Limits
from fleximq.values.message import Content, Message
from tests.broker.parts import Collector
from tests.dialects.flexi_peer import FlexiCase, FlexiPeer
from tests.slow_journal import SlowJournal
from tests.wire.flexi_frames import frame


class TopicCase(FlexiCase):
    """Alice, Bob and Carol."""

    def setUp(self) -> None:
        """Join three clients."""
        super().setUp()
        self.alice, self.bob, self.carol = (self.server.join() for _ in range(3))


class DeliveryTests(TopicCase):
    """Document 3.6 and 7.3.3."""

    def test_unchanged(self) -> None:
        """A PUB reaches its subscribers with the publisher's id, header and payload unchanged to the byte."""
        self.bob.subscribe("news_updates")
        header = {"status": 200, "topic": "news_updates", "traceparent": "00-1", "list": [1, {"x": None}]}
        for payload in (b"", b"\x81\xa7article\xb0New discovery...", b"\xc1 no MessagePack"):
            self.alice.send("PUB", header, payload)
            self.assertEqual(self.bob.heard(), frame("PUB", self.alice.id, header, payload))

    def test_oddMessagePack(self) -> None:
        """A header in a longer form of MessagePack is not shortened."""
        self.bob.subscribe("t")
        raw = b"\xdf\x00\x00\x00\x01\xda\x00\x05topic\xd9\x01t"
        for _ in range(3):
            self.alice.send("PUB", raw, b"\x01")
            self.assertEqual(self.bob.heard(), frame("PUB", self.alice.id, raw, b"\x01"))

    def test_silence(self) -> None:
        """SUB, PUB and UNSUB that succeed are not answered."""
        self.bob.subscribe("t").publish("u")
        self.bob.tell("UNSUB", {"topic": "t"})
        self.assertEqual(self.bob.barrier(), [])

    def test_onlySubscribers(self) -> None:
        """Who is not subscribed gets nothing; names differ by case."""
        self.bob.subscribe("News", "news/x")
        self.alice.publish("news", 1).publish("NEWS", 2).publish("news.x", 3)
        self.assertEqual(self.bob.values(), [])

    def test_ownMessages(self) -> None:
        """A publisher that is subscribed gets its own message."""
        self.alice.subscribe("t").publish("t", 1)
        self.assertEqual(self.alice.values(), [1])

    def test_noSubscriber(self) -> None:
        """A publication that nobody takes is no error: 601 is not sent."""
        self.assertEqual(self.alice.publish("nobody", 1).barrier(), [])

    def test_twice(self) -> None:
        """A duplicate SUB changes nothing, and one UNSUB ends it."""
        self.bob.subscribe("t", "t").publish("t", 1)
        self.assertEqual(self.bob.values(), [1])
        self.bob.tell("UNSUB", {"topic": "t"}).publish("t", 2)
        self.assertEqual(self.bob.values(), [])

    def test_again(self) -> None:
        """After an UNSUB one may subscribe again."""
        self.bob.subscribe("t").tell("UNSUB", {"topic": "t"}).subscribe("t")
        self.alice.publish("t", 1)
        self.assertEqual(self.bob.values(), [1])

    def test_immediately(self) -> None:
        """SUB and UNSUB between publications of one read act between them."""
        pub = frame("PUB", self.alice.id, {"topic": "t"})
        sub, unsub = (frame(kind, self.alice.id, {"topic": "t"}) for kind in ("SUB", "UNSUB"))
        self.assertEqual(self.alice.ask(pub + sub + pub * 3 + unsub + pub * 2 + sub + pub), pub * 4)

    def test_leaving(self) -> None:
        """Who has left gets nothing, and is missed by nobody."""
        self.bob.subscribe("t", "t.*")
        self.carol.subscribe("t")
        self.bob.leave()
        self.alice.publish("t", 1)
        self.assertEqual((self.bob.heard(), self.carol.values(), self.alice.barrier()), (b"", [1], []))

    def test_order(self) -> None:
        """Publications of one connection arrive in order, however their topics change."""
        self.bob.subscribe("a", "b")
        for number in range(100):
            self.alice.publish("ab"[number * 7 % 5 % 2], number)
        self.assertEqual(self.bob.values(), list(range(100)))

    def test_payloadOfSubIgnored(self) -> None:
        """A payload of SUB and UNSUB is ignored."""
        self.bob.tell("SUB", {"topic": "t"}, "x")
        self.alice.publish("t", 1)
        self.assertEqual(self.bob.values(), [1])


class NameTests(TopicCase):
    """What a topic may be called."""

    def status(self, kind: str, topic: Any) -> int | None:
        """Return the status that a message with this topic is answered with, None for silence."""
        heard = self.alice.answer(kind, {"topic": topic})
        for each in heard:
            self.assertError(each, self.alice, each.status or 0)
        return heard[0].status if heard else None

    def test_empty(self) -> None:
        """SUB 603, PUB 400, UNSUB silent."""
        self.assertEqual([self.status(kind, "") for kind in ("SUB", "PUB", "UNSUB")], [603, 400, None])

    def test_length(self) -> None:
        """1,023 and 1,024 bytes of UTF-8 are taken, 1,025 are not: SUB 603, UNSUB silent, PUB 400."""
        for unit, size in (("t", 1), ("é", 2), ("€", 3), ("𝄞", 4)):
            for more in ("", "x", "xx", "xxx", "xxxx", "xxxxx"):
                name = unit * (1020 // size) + more
                good = len(name.encode()) <= 1024
                found = [self.status(kind, name) for kind in ("SUB", "UNSUB", "PUB")]
                self.assertEqual(found, [None] * 3 if good else [603, None, 400], len(name.encode()))

    def test_patternLength(self) -> None:
        """The same holds for patterns."""
        for last in ("*", "#"):
            for size in (1023, 1024, 1025):
                name = "p" * (size - 2) + "." + last
                self.assertEqual(self.status("SUB", name), None if size <= 1024 else 603, size)
                self.assertEqual(self.status("UNSUB", name), None)

    def test_wrongType(self) -> None:
        """A topic that is no string: 400 for all."""
        topic: Any
        for topic in (None, 5, b"t", ["t"], {}):
            self.assertEqual([self.status(kind, topic) for kind in ("SUB", "PUB", "UNSUB")], [400] * 3, topic)

    def test_anyCharacters(self) -> None:
        """Spaces, colons, line breaks, NUL, wildcards inside a level: all are names."""
        for name in (" ", ":", ":::", "\n", "\0", "a*", "#a", "*.", "a..b", "/", ".", "ü", "$", "$mine"):
            self.assertEqual(self.bob.subscribe(name).barrier(), [], name)
            self.alice.publish(name, name)
            self.assertEqual(self.bob.values(), [name], name)
            self.bob.tell("UNSUB", {"topic": name})

    def test_unknownUnsubscribed(self) -> None:
        """UNSUB of what was never subscribed is silent."""
        self.assertEqual(self.status("UNSUB", "never"), None)
        self.assertEqual(self.status("UNSUB", "never.*"), None)

    def test_subscriptionLimit(self) -> None:
        """Below and at the limit; above it 603; an UNSUB makes room, a duplicate needs none."""
        self.server = self.makeServer(limits=Limits(subscriptions=3))
        self.alice = self.server.join().subscribe("a", "b.*", "c")
        self.assertEqual(self.alice.barrier(), [])
        self.assertEqual([self.status("SUB", name) for name in ("a", "b.*", "d", "d.#")], [None, None, 603, 603])
        self.assertEqual([self.status("UNSUB", "b.*"), self.status("SUB", "d")], [None, None])

    def test_levels(self) -> None:
        """A pattern with too many levels: 603. A name may have as many as its length allows."""
        self.assertEqual(self.status("SUB", "a." * 31 + "*"), None)
        self.assertEqual(self.status("SUB", "a." * 32 + "*"), 603)
        self.assertEqual(self.status("SUB", "a." * 511 + "a"), None)


class WildcardTests(TopicCase):
    """``*`` and ``#``; the table of matches is in tests/broker/test_topics.py."""

    def test_oneCopy(self) -> None:
        """Who matches by several subscriptions gets one copy; the last UNSUB ends it."""
        patterns = ["a.b", "a.*", "*.b", "a.#", "#", "a/*"]
        self.bob.subscribe(*patterns)
        for pattern in patterns:
            self.alice.publish("a.b", pattern)
            self.assertEqual(self.bob.values(), [pattern])
            self.bob.tell("UNSUB", {"topic": pattern})
        self.alice.publish("a.b", 1)
        self.assertEqual(self.bob.values(), [])

    def test_asGiven(self) -> None:
        """UNSUB takes the pattern as it was given: ``a/*`` does not end ``a.*``."""
        self.bob.subscribe("a.*").tell("UNSUB", {"topic": "a/*"})
        self.alice.publish("a.b", 1)
        self.assertEqual(self.bob.values(), [1])

    def test_knownTopics(self) -> None:
        """A pattern takes effect, and ends, for topics that are published to already."""
        for number in (1, 2):
            self.alice.publish("a.b", number)
            self.bob.subscribe("a.*")
            self.alice.publish("a.b", number).publish("a.c", number)
            self.assertEqual(self.bob.values(), [number, number])
            self.bob.tell("UNSUB", {"topic": "a.*"})
        self.alice.publish("a.b", 3)
        self.assertEqual(self.bob.values(), [])

    def test_literalInPublications(self) -> None:
        """A PUB's topic is literal: it reaches no topic but the one that is called so."""
        self.bob.subscribe("a.b", "a.#.x")
        self.carol.subscribe("a.*")
        self.alice.publish("a.*", 1).publish("a.#", 2).publish("a.#.x", 3)
        self.assertEqual((self.bob.values(), self.carol.values()), ([3], [1, 2]))

    def test_dollar(self) -> None:
        """Topics that begin with ``$`` match no wildcard at their first level."""
        self.bob.subscribe("#", "*.a", "$mine.*", "*")
        self.alice.publish("$mine", 1).publish("$mine.a", 2).publish("$mine.a.b", 3)
        self.assertEqual(self.bob.values(), [2])


class ReservedNameTests(TopicCase):
    """Only the broker publishes to ``$sys/`` and ``$dead/``."""

    def test_forbidden(self) -> None:
        """A PUB there: 403, however long or short the rest; nobody gets it."""
        self.bob.subscribe("$sys/clients/joined", "$dead/t", "$sys/", "$sys/#", "$dead/#")
        for topic in ("$sys/clients/joined", "$sys/", "$sys/x", "$dead/t", "$dead/", "$sys/" + "x" * 2000):
            [heard] = self.alice.answer("PUB", {"topic": topic}, b"\x01")
            self.assertError(heard, self.alice, 403)
        self.assertEqual(self.bob.values(), [])

    def test_otherDollars(self) -> None:
        """Other topics that begin with ``$`` are anybody's."""
        names = ["$", "$x", "$sysx", "$SYS/x", "$$sys/x", "x$sys/"]
        self.bob.subscribe(*names)
        for name in names:
            self.alice.publish(name, name)
        self.assertEqual(self.bob.values(), names)

    def test_narrowedToo(self) -> None:
        """Narrowing does not open them."""
        header = {"topic": "$sys/x", "routing": [{"client_id": self.bob.id}]}
        [heard] = self.alice.answer("PUB", header)
        self.assertError(heard, self.alice, 403)


class PresenceTests(TopicCase):
    """The broker's own topics."""

    def test_joined(self) -> None:
        """A join is told, as a PUB from client 1."""
        self.bob.subscribe("$sys/clients/joined")
        dora = self.server.join()
        [heard] = self.bob.messages()
        self.assertEqual((heard.kind, heard.sender, heard.header), ("PUB", 1, {"topic": "$sys/clients/joined"}))
        self.assertEqual(heard.value, {"client_id": dora.id, "dialect": "fleximq", "name": f"fleximq-{dora.id}"})

    def test_left(self) -> None:
        """A leave is told, with its reason."""
        self.bob.subscribe("$sys/clients/left")
        self.alice.leave()
        self.clock.advance(0)
        self.assertEqual(
            self.bob.values(),
            [
                {
                    "client_id": self.alice.id,
                    "dialect": "fleximq",
                    "name": f"fleximq-{self.alice.id}",
                    "reason": "connection lost",
                }
            ],
        )

    def test_created(self) -> None:
        """Each new topic is told once: by PUB, by SUB; patterns are none."""
        self.bob.subscribe("$sys/topics/created")
        self.alice.publish("a").publish("a").subscribe("b", "c.*").publish("b")
        self.alice.messages()
        self.assertEqual(self.bob.values(), [{"topic": "a"}, {"topic": "b"}])

    def test_byPattern(self) -> None:
        """A pattern whose first level is literal takes them too."""
        self.bob.subscribe("$sys/clients/*", "$sys/#")
        self.server.join().leave()
        self.clock.advance(0)
        self.assertEqual([each["client_id"] for each in self.bob.values()], [1003, 1003])

    def test_whoNeverJoined(self) -> None:
        """Connections that never joined are not told."""
        self.bob.subscribe("$sys/#")
        self.server.connect().send("PING").leave()
        self.clock.advance(0)
        self.assertEqual(self.bob.values(), [])

    def test_nobodyListens(self) -> None:
        """Where nobody listens, no such topic comes into being."""
        self.alice.publish("t")
        names = [topic.name for topic in self.server.broker.topics]
        self.assertEqual(names, ["t"])


class NarrowedTests(TopicCase):
    """``routing`` in a PUB narrows delivery to subscribers whose client_id is listed."""

    def narrowed(self, *targets: int, topic: str = "t") -> bytes:
        """Publish to these, and return the frame that was sent."""
        header = {"topic": topic, "routing": [{"client_id": target} for target in targets]}
        self.alice.send("PUB", header, b"\x07")
        return frame("PUB", self.alice.id, header, b"\x07")

    def heardBy(self) -> tuple[bytes, bytes, bytes]:
        """Return what the three heard."""
        return self.alice.heard(), self.bob.heard(), self.carol.heard()

    def test_listed(self) -> None:
        """Only listed subscribers get it, once each, unchanged; others who are listed get nothing."""
        self.bob.subscribe("t", "#")
        self.alice.subscribe("t")
        sent = self.narrowed(self.bob.id, self.carol.id, self.bob.id, 4711, 2)
        self.assertEqual(self.heardBy(), (b"", sent, b""))
        self.assertEqual(self.alice.barrier(), [])

    def test_byPattern(self) -> None:
        """A subscription by pattern counts."""
        self.bob.subscribe("*")
        sent = self.narrowed(self.bob.id)
        self.assertEqual(self.heardBy(), (b"", sent, b""))

    def test_oneself(self) -> None:
        """The publisher may list itself."""
        self.alice.subscribe("t")
        sent = self.narrowed(self.alice.id)
        self.assertEqual(self.heardBy(), (sent, b"", b""))

    def test_onlyTheBroker(self) -> None:
        """Only 1 means everyone, other dialects too."""
        foreign = Collector()
        self.server.broker.subscribe(self.server.foreign(), foreign, "t")
        self.bob.subscribe("t")
        sent = self.narrowed(1)
        self.assertEqual(self.heardBy(), (b"", sent, b""))
        self.assertEqual(foreign.payloads(), [b"\x07"])

    def test_theBrokerAmongOthers(self) -> None:
        """1 beside others is ignored."""
        for peer in (self.bob, self.carol):
            peer.subscribe("t")
        sent = self.narrowed(1, self.carol.id)
        self.assertEqual(self.heardBy(), (b"", b"", sent))

    def test_nobodyThere(self) -> None:
        """Unknown ids only: nobody gets it, and nobody is told."""
        self.bob.subscribe("t")
        self.narrowed(4711, 999)
        self.assertEqual((self.heardBy(), self.alice.barrier()), ((b"", b"", b""), []))

    def test_fleximqOnly(self) -> None:
        """Queues and clients of other dialects get nothing, listed or not."""
        stranger, foreign = self.server.foreign(), Collector()
        broker = self.server.broker
        broker.subscribe(stranger, foreign, "t")
        subscription = broker.openSubscription(stranger, None, "t", 1)
        broker.consume(stranger, "t")
        self.narrowed(stranger.id, self.bob.id)
        self.assertEqual(foreign.payloads(), [])
        self.assertEqual([*broker.subscription(stranger, None, subscription.id).poll(stranger, 10)[1]], [])
        self.assertIsNone(broker.consume(stranger, "t"))

    def test_notRemembered(self) -> None:
        """Narrowed and plain publications to one topic do not disturb each other."""
        for peer in (self.bob, self.carol):
            peer.subscribe("t")
        self.alice.publish("t", 1)
        self.narrowed(self.bob.id)
        self.alice.publish("t", 1)
        self.assertEqual((self.bob.values(), self.carol.values()), ([1, 7, 1], [1, 1]))

    def test_paths(self) -> None:
        """Paths are optional and mean nothing to the broker."""
        self.bob.subscribe("t")
        self.alice.publish("t", 1, routing=[{"client_id": self.bob.id, "path": "/regional"}])
        self.assertEqual(self.bob.values(), [1])


class CrossingTests(TopicCase):
    """What crosses to and from other dialects (the table of payloads is in tests/wire)."""

    def fromOutside(self, *messages: Message, topic: str = "t") -> ConnectedClient:
        """Publish as a client of another dialect, and return it."""
        client = self.server.foreign()
        broker = self.server.broker
        broker.publish(Envelope(broker.topicFor(client, topic), client, MessageSource()), messages, len(messages))
        self.server.context.turn.flush()
        return client

    def test_text(self) -> None:
        """Text comes as a string from the publisher's id, and nothing but the topic in the header."""
        self.bob.subscribe("t")
        client = self.fromOutside(Message("grüße".encode(), Content.TEXT))
        self.assertEqual(self.bob.heard(), frame("PUB", client.id, {"topic": "t"}, msgpack.packb("grüße")))

    def test_bytes(self) -> None:
        """Bytes come as bin."""
        self.bob.subscribe("t")
        client = self.fromOutside(Message(b"\xff\x00", Content.BYTES))
        self.assertEqual(self.bob.heard(), frame("PUB", client.id, {"topic": "t"}, msgpack.packb(b"\xff\x00")))

    def test_run(self) -> None:
        """A run comes as as many frames, in order."""
        self.bob.subscribe("t")
        self.fromOutside(*(Message(str(number).encode(), Content.TEXT) for number in range(5)))
        self.assertEqual(self.bob.values(), list("01234"))

    def test_idsInward(self) -> None:
        """Another dialect's ids are header keys of the same names; empty ones are left out."""
        self.bob.subscribe("t")
        self.fromOutside(
            Message(b"x", Content.TEXT, 1, "m1", "c1", "replies"),
            Message(b"x", Content.TEXT, 1, "m2", "", None),
        )
        first, second = self.bob.messages()
        self.assertEqual(
            first.header, {"topic": "t", "message_id": "m1", "correlation_id": "c1", "reply_to": "replies"}
        )
        self.assertEqual(second.header, {"topic": "t", "message_id": "m2"})

    def test_idsOutward(self) -> None:
        """The optional keys of a PUB reach other dialects, each message with its own."""
        foreign = Collector()
        self.server.broker.subscribe(self.server.foreign(), foreign, "t")
        self.alice.publish("t", 1, message_id="m1", correlation_id="c1", reply_to="r")
        self.alice.publish("t", 2, message_id="m2")
        self.alice.publish("t", 3, reply_to="r")
        self.alice.publish("t", 4, key=b"k")
        self.assertEqual(
            [each[3:6] for each in foreign.messages],
            [("m1", "c1", "r"), ("m2", None, None), (None, None, "r"), (None, None, None)],
        )
        self.assertEqual(foreign.payloads(), [b"\x01", b"\x02", b"\x03", b"\x04"])
        self.assertEqual({each.content for each in foreign.messages}, {Content.MESSAGEPACK})
        self.assertEqual({each.qos for each in foreign.messages}, {1})

    def test_keysForwarded(self) -> None:
        """The optional keys reach FlexiMQ subscribers unchanged."""
        self.bob.subscribe("t")
        self.alice.publish("t", 1, message_id="m", correlation_id="", reply_to="r", key=b"\xff")
        [heard] = self.bob.messages()
        self.assertEqual(
            heard.header, {"topic": "t", "message_id": "m", "correlation_id": "", "reply_to": "r", "key": b"\xff"}
        )

    def test_badKeys(self) -> None:
        """A key of the wrong type: 400."""
        for bad in ({"message_id": 1}, {"correlation_id": b"x"}, {"reply_to": None}, {"key": 5}):
            [heard] = self.alice.answer("PUB", {"topic": "t", **bad})
            self.assertError(heard, self.alice, 400)

    def test_runOutward(self) -> None:
        """A run of equal envelopes is taken apart for those who need single messages, empty payloads too."""
        foreign = Collector()
        self.server.broker.subscribe(self.server.foreign(), foreign, "t")
        contents = [b"", b"\x01", b"\xa5hello", b"", b"\xc4\x01x"]
        self.alice.say(b"".join(frame("PUB", self.alice.id, {"topic": "t"}, each) for each in contents))
        self.assertEqual(foreign.payloads(), contents)

    def test_fullSubscription(self) -> None:
        """What a subscription that loses nothing cannot take is refused, one error for each; the rest goes on."""
        self.server = self.makeServer(limits=Limits(queueMessages=3))
        self.alice, self.bob = self.server.join(), self.server.join().subscribe("t")
        stranger = self.server.foreign("blipmq")
        self.server.broker.openSubscription(stranger, None, "t", 1)
        self.alice.say(b"".join(frame("PUB", self.alice.id, {"topic": "t"}, bytes([n])) for n in range(5)))
        heard = self.alice.barrier()
        self.assertEqual([each.status for each in heard], [500, 500])
        for each in heard:
            self.assertError(each, self.alice, 500, path="t")
        self.assertEqual(self.bob.values(), [0, 1, 2])


class BarrierTests(TopicCase):
    """A PING behind publications is a barrier."""

    def test_errorsFirst(self) -> None:
        """Errors of failed publications come before the PONG."""
        ping = frame("PING", self.alice.id, {"keepalive": {"timestamp": 1}})
        bad = frame("PUB", self.alice.id, {"topic": ""})
        heard = self.alice.say(bad + ping + bad).messages()
        self.assertEqual([each.kind for each in heard], ["REP", "PONG", "REP"])

    def test_ownMessagesFirst(self) -> None:
        """So do the publisher's own copies."""
        self.alice.subscribe("t")
        self.alice.publish("t", 1)
        self.assertEqual([each.kind for each in self.alice.barrier()], ["PUB"])

    def test_waitsUntilSafe(self) -> None:
        """While something is not safe the PONG waits."""
        journal = SlowJournal()
        self.server = self.makeServer(journal=journal, durable=("t",))
        peer = self.server.join().publish("t")
        peer.tell("PING", {"keepalive": {"timestamp": 1}})
        self.assertEqual(peer.messages(), [])
        journal.commit()
        self.clock.advance(0)
        self.assertEqual([each.kind for each in peer.messages()], ["PONG"])

    def test_goneMeanwhile(self) -> None:
        """Whoever has left by then is not answered, and nothing breaks."""
        journal = SlowJournal()
        self.server = self.makeServer(journal=journal, durable=("t",))
        peer = self.server.join().publish("t")
        peer.tell("PING", {"keepalive": {"timestamp": 1}}).leave()
        journal.commit()
        self.clock.advance(0)
        self.assertEqual(peer.heard(), b"")


class RememberedTests(TopicCase):
    """Envelopes and topics that are remembered, and what happens when they no longer are."""

    def remembered(self, peer: FlexiPeer) -> int:
        """Return how many envelopes are remembered for a peer."""
        return len(peer.protocol.session.reads.envelopes)

    def test_plainOnly(self) -> None:
        """Remembered are plain PUBs; not those with routing, ids or trace keys, and no other type."""
        self.alice.publish("t").publish("t").publish("u")
        self.assertEqual(self.remembered(self.alice), 2)
        routing = [{"client_id": self.bob.id, "path": ""}]
        for more in (
            {"routing": routing},
            {"message_id": "m"},
            {"correlation_id": "c"},
            {"traceparent": "x"},
            {"tracestate": "x"},
        ):
            self.alice.publish("t", 1, **more)
        self.alice.send("PUB", {"topic": "t"}, reserved=b"\x01" * 16)
        self.alice.subscribe("t").tell("NOTIF", {"routing": routing}).tell("BCAST", {"topic": "t"}).publish("")
        self.alice.send("PUB", {"topic": "t"}, client_id=77)
        self.assertEqual(self.remembered(self.alice), 2)

    def test_bounded(self) -> None:
        """Thousands of different envelopes do not pile up, and all are delivered."""
        self.bob.subscribe("#")
        for number in range(5000):
            self.alice.publish(f"t{number}", number)
        self.assertLessEqual(self.remembered(self.alice), 4096)
        self.assertEqual(self.bob.values(), list(range(5000)))

    def test_forgottenTopic(self) -> None:
        """A remembered envelope whose topic was forgotten still delivers, to who subscribed then and later."""
        for idle in (1, 2, 5):
            self.server = self.makeServer(limits=Limits(topics=idle))
            alice, bob = self.server.join(), self.server.join()
            alice.publish("t", 0)
            for number in range(2 * idle + 2):
                alice.publish(f"other{number}")
            bob.subscribe("t")
            self.assertEqual(alice.publish("t", 1).publish("t", 2).barrier(), [])
            self.assertEqual(bob.values(), [1, 2])
            bob.tell("UNSUB", {"topic": "t"}).subscribe("t*", "*")
            for number in range(2 * idle + 2):
                alice.publish(f"more{number}")
            bob.messages()
            alice.publish("t", 3)
            self.assertEqual(bob.values(), [3])

    def test_subscribedIsNotForgotten(self) -> None:
        """A topic with a subscriber stays, however many others come."""
        self.server = self.makeServer(limits=Limits(topics=1))
        alice, bob = self.server.join(), self.server.join().subscribe("a", "b", "c")
        for number in range(20):
            alice.publish(f"other{number}").publish("abc"[number % 3], number)
        self.assertEqual(bob.values(), list(range(20)))

    def test_idleOnesBounded(self) -> None:
        """Idle topics are forgotten, oldest first."""
        self.server = self.makeServer(limits=Limits(topics=3))
        alice = self.server.join()
        for number in range(10):
            alice.publish(f"t{number}")
        self.assertEqual([topic.name for topic in self.server.broker.topics], ["t7", "t8", "t9"])
