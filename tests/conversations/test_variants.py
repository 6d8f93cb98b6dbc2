"""FlexiMQ's variants in use, with all dialects (docs/reference/dialects.rst, "Variants in use")."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from tests.conversations.case import Place, SocketCase, onOwnListeners
from tests.conversations.clients import FlexiClient
from tests.wire.flexi_variants import LAYOUT_B, MAPS, POSITIONAL, POSITIONAL_B, VARIANTS, Variant

NOBODY = 0xFFFFFFFE


class VariantCase(SocketCase):
    """Clients of all variants; ``carriers`` names what carries the two of a pair."""

    carriers: tuple[tuple[str, str], ...] = (("flexi", "flexi"),)

    def join(self, carrier: str, variant: Variant, header: Any = None) -> FlexiClient:
        """Return a client that has joined over TCP (``flexi``) or WebSocket (``flexiWs``)."""
        client: FlexiClient = getattr(self, carrier)(header, variant)
        return client

    def pairs(self) -> Iterator[tuple[FlexiClient, FlexiClient]]:
        """Yield two clients for every pair of variants over one pair of carriers, for some pairs over several."""
        several = len(self.carriers) > 1
        variants = zip(VARIANTS, VARIANTS[1:] + VARIANTS[:1], strict=True) if several else product(VARIANTS, VARIANTS)
        for (one, other), (carrier, otherCarrier) in product(variants, self.carriers):
            yield self.join(carrier, one), self.join(otherCarrier, other)


class PairTests(VariantCase):
    """Every variant with every other."""

    def test_published(self) -> None:
        """A PUB arrives as a map with its topic, payload and publisher."""
        for number, (alice, bob) in enumerate(self.pairs()):
            topic = f"{self.topic}.{number}"
            bob.subscribe(topic).barrier()
            self.assertEqual(alice.publish(topic, {"n": number}).barrier(), [])
            [heard] = bob.barrier()
            self.assertEqual((heard.sender, heard.header, heard.value), (alice.id, {"topic": topic}, {"n": number}))

    def test_many(self) -> None:
        """A thousand in one write arrive complete and in order."""
        for number, (alice, bob) in enumerate(self.pairs()):
            topic = f"{self.topic}.{number}"
            bob.subscribe(topic).barrier()
            alice.say(alice.variant.frame("PUB", alice.id, {"topic": topic}, b"\x07") * 1000)
            alice.publish(topic, "end")
            self.assertEqual([bob.hear().value for _ in range(1001)], [7] * 1000 + ["end"])

    def test_large(self) -> None:
        """So does a payload of 1 MiB."""
        for number, (alice, bob) in enumerate(self.pairs()):
            topic = f"{self.topic}.{number}"
            bob.subscribe(topic).barrier()
            alice.publish(topic, bytes(1 << 20))
            self.assertEqual(bob.hear().value, bytes(1 << 20))

    def test_asked(self) -> None:
        """REQ and REP pass both ways, with their path, correlation and status."""
        for alice, bob in self.pairs():
            alice.request(bob.id, "/p", "R", "?")
            asked = bob.hear()
            self.assertEqual((asked.kind, asked.sender, asked.value), ("REQ", alice.id, "?"))
            self.assertEqual(
                asked.header,
                {"routing": [{"client_id": bob.id, "path": "/p"}], "reqrep": {"type": "request", "id": "R"}},
            )
            bob.reply(asked.sender, "R", "!", status=404)
            answer = alice.hear()
            self.assertEqual((answer.kind, answer.sender, answer.value), ("REP", bob.id, "!"))
            self.assertEqual(answer.header["status"], alice.variant.status(404))
            self.assertEqual(answer.header["reqrep"], {"type": "correlation", "id": "R"})

    def test_notified(self) -> None:
        """A NOTIF arrives, and what could not be delivered is reported."""
        for alice, bob in self.pairs():
            routing = [{"client_id": bob.id, "path": "/n"}, {"client_id": NOBODY, "path": "/lost"}]
            [report] = alice.tell("NOTIF", {"routing": routing}, "hi").barrier()
            status = alice.variant.status(600)
            self.assertEqual((report.kind, report.status, report.header["routing"]), ("NOTIF", status, routing[1:]))
            self.assertEqual([(each.header, each.value) for each in bob.barrier()], [({"routing": routing}, "hi")])

    def test_broadcast(self) -> None:
        """A BCAST arrives."""
        for alice, bob in self.pairs():
            alice.tell("BCAST", {}, self.topic)
            self.assertEqual(alice.barrier(), [])
            self.assertEqual(
                [(each.kind, each.sender, each.value) for each in bob.barrier()][-1:], [("BCAST", alice.id, self.topic)]
            )

    def test_responderLeaves(self) -> None:
        """A responder that leaves: REP 502."""
        for alice, bob in self.pairs():
            alice.request(bob.id, "/p", "R")
            bob.hear()
            bob.close()
            self.assertError(alice.hear(), alice, 502, "R")


class PairOverWebSocketTests(PairTests):
    """The same over WebSocket, and between TCP and WebSocket."""

    carriers = (("flexiWs", "flexiWs"), ("flexi", "flexiWs"), ("flexiWs", "flexi"))


class AloneTests(VariantCase):
    """One client of each variant and the broker."""

    def clients(self, header: Any = None) -> list[FlexiClient]:
        """Return a client for each variant and carrier."""
        return [self.join(carrier, variant, header) for variant in VARIANTS for carrier in ("flexi", "flexiWs")]

    def test_join(self) -> None:
        """A JOIN may carry reqrep and credentials."""
        for header in (
            {"reqrep": {"type": "request", "id": "J"}},
            {"auth": {"type": "token", "token": "t"}},
            {"auth": {"type": "basic", "username": "u", "password": "p"}, "reqrep": {"type": "request", "id": "J"}},
            {"auth": {"type": "api_key", "api_key": "k"}},
        ):
            for client in self.clients(header):
                self.assertEqual(client.barrier(), [])

    def test_refusedJoin(self) -> None:
        """A JOIN that is refused gets the same error in all of them, and the end."""
        for variant in VARIANTS:
            for header, status in (({"auth": {"type": "magic", "x": "y"}}, 604), ({"topic": "t"}, 400)):
                [heard] = self.stranger(variant).send("JOIN", header).untilEnd()
                wanted = {"status": variant.status(status)}
                self.assertEqual((heard.kind, heard.sender, heard.header), ("REP", 0, wanted))

    def test_errors(self) -> None:
        """Errors after it."""
        for client in self.clients():
            for kind, header, status in (
                ("SUB", {"topic": ""}, 603),
                ("PUB", {}, 400),
                ("NOTIF", {"routing": []}, 602),
            ):
                [heard] = client.answer(kind, header)
                self.assertError(heard, client, status)
            [heard] = client.request(NOBODY, "/p", "R").barrier()
            self.assertError(heard, client, 600, "R")

    def test_brokerPaths(self) -> None:
        """The broker answers on its own paths."""
        for client in self.clients():
            self.assertEqual(client.ask("/broker/about")["name"], "FlexiMQ")

    def test_named(self) -> None:
        """Who joins with a name reads an empty one in the broker's routing entries."""
        client = self.flexi({"client_name": "svc"})
        [heard] = client.request(1, "/none", "R").barrier()
        self.assertEqual(heard.header["routing"], [{"client_id": client.id, "path": "/none", "client_name": ""}])

    def test_byteByByte(self) -> None:
        """The variant is found however the bytes arrive."""
        for variant in VARIANTS:
            client = self.stranger(variant)
            for byte in variant.frame("JOIN", 0, {}):
                client.say(bytes([byte]))
            client.id = client.hear().sender
            self.assertEqual(client.barrier(), [])


class OtherDialectTests(VariantCase):
    """Each variant with the other dialects."""

    def test_outwards(self) -> None:
        """What a client of any variant publishes reaches subscribers of all dialects."""
        blip, mini, identity = self.blip(), self.mini(), self.identity(self.topic)
        subscription = blip.subscribe(self.topic)
        mini.consume(self.topic)
        for variant in VARIANTS:
            client = self.flexi(None, variant)
            client.publish(self.topic, variant.name).barrier()
            self.assertEqual(identity.hear(), f"MSG:{self.topic}:fleximq-{client.id}:{variant.name}")
            self.assertEqual(blip.poll(subscription).message, variant.name.encode())
            self.assertEqual(mini.consume(self.topic).split(":::")[2], variant.name)

    def test_inwards(self) -> None:
        """What others publish reaches clients of every variant, from MiniMQ with its ids."""
        clients = [self.flexi(None, variant).subscribe(self.topic) for variant in VARIANTS]
        for client in clients:
            client.barrier()
        self.blip().publish(self.topic, b"\xff").barrier()
        self.identity(self.topic).say(f"PUBLISH:{self.topic}:text").barrier()
        self.mini().produce(self.topic, "i", "line", "c", "r")
        ids = {"message_id": "i", "correlation_id": "c", "reply_to": "r"}
        for client in clients:
            heard = [client.hear() for _ in range(3)]
            self.assertEqual([each.value for each in heard], [b"\xff", "text", "line"])
            self.assertEqual(heard[2].header, {"topic": self.topic} | ids)

    def test_presence(self) -> None:
        """The broker's own publications reach them too."""
        for variant in VARIANTS:
            client = self.flexi(None, variant).subscribe("$sys/clients/joined")
            client.barrier()
            joined = self.flexi()
            ids = []
            while joined.id not in ids:
                ids.append(client.hear().value["client_id"])


class StrictTests(VariantCase):
    """With ``--strict-fleximq`` only the document's own form is understood."""

    place = Place("--strict-fleximq")

    def test_maps(self) -> None:
        """It is as ever, over both carriers."""
        for carrier in ("flexi", "flexiWs"):
            self.assertEqual(self.join(carrier, MAPS, {}).barrier(), [])

    def test_arrays(self) -> None:
        """An array is no map: 400 and the end."""
        [heard] = self.stranger(POSITIONAL).send("JOIN", {}).untilEnd()
        self.assertEqual(heard.header, {"status": 400})

    def test_layoutB(self) -> None:
        """The other layout never gets in."""
        for variant in (LAYOUT_B, POSITIONAL_B):
            stream = self.stream("fleximq")
            client = FlexiClient(stream)
            stream.say(variant.frame("JOIN", 0, {"reqrep": {"type": "request", "id": "J"}}) * 2)
            stream.endInput()
            self.assertNotIn(200, [each.status for each in client.untilEnd()])


globals().update(onOwnListeners(AloneTests, OtherDialectTests))
