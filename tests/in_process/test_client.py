"""Publications, subscriptions and the end of clients in the process."""

import warnings
from typing import Any

import msgpack
from twisted.internet.defer import Deferred
from zope.interface.verify import verifyObject

from fleximq.client.errors import TopicWarning
from fleximq.client.payloads import Packed
from fleximq.client.settings import Codec
from fleximq.config.option_values import Sender
from fleximq.config.permission_options import tables
from fleximq.config.rate_options import Rate
from fleximq.config.settings import Settings
from fleximq.errors import (
    BadRequest,
    Conflict,
    Forbidden,
    InvalidTopic,
    JoinRejected,
    NoCapacity,
    NotKept,
    NotPermitted,
    NotRecorded,
    SettingError,
    SubscriptionFailed,
    TooLarge,
    TooManyRequests,
)
from fleximq.interfaces import IConversation, IPeer, ISubscriber
from fleximq.limits import Limits
from fleximq.rights import ALL_BUT_ADMIN, EVERYTHING
from fleximq.security.bans import Ban, Bans
from fleximq.security.permissions import Permissions
from fleximq.security.principal import Principal
from tests.broker.parts import Collector, Witness
from tests.in_process.case import InProcessCase
from tests.slow_journal import SlowJournal

PRINCIPALS = {"shop": {"publish": ["orders.#"], "subscribe": ["orders.#"], "serve": ["till"]}}


class PublishingTests(InProcessCase):
    """From a client in the process to all others."""

    def test_aSubscriberOfTheProcessGetsTheValue(self) -> None:
        self.broker()
        reader = self.done(self.client().subscribe("news.*"))
        for value in (b"bytes", "text", {"rain": [1, None, True]}, Packed(b"\x01")):
            self.done(self.client().publish("news.today", value))
        self.assertEqual(
            [self.done(reader.next()).value for _ in range(4)], [b"bytes", "text", {"rain": [1, None, True]}, 1]
        )

    def test_otherDialectsGetTheMessage(self) -> None:
        self.broker()
        other = Collector()
        self.aBroker.subscribe(self.aBroker.join("test"), other, "news")
        self.done(self.client().publish("news", "hello", message_id="7", correlation_id="c", reply_to="r"))
        (message,) = other.messages
        self.assertEqual(
            (message.payload, message.message_id, message.correlation_id, message.reply_to),
            (msgpack.packb("hello"), "7", "c", "r"),
        )

    def test_severalValuesAreOneRun(self) -> None:
        self.broker()
        other = Collector()
        self.aBroker.subscribe(self.aBroker.join("test"), other, "news")
        self.done(self.client().publish_many("news", [1, "two", b"3"]))
        self.assertEqual((other.counts, len(other.messages)), ([3], 3))
        self.done(self.client().publish_many("news", []))
        self.refused(self.client().publish_many("news", "letters"), TypeError)

    def test_furtherHeadersReachSubscribers(self) -> None:
        self.broker()
        reader = self.done(self.client().subscribe("news"))
        writer = self.client()
        self.done(writer.publish("news", 1, key="k", headers={"colour": "red"}))
        delivery = self.done(reader.next())
        self.assertEqual(delivery.header, {"topic": "news", "key": "k", "colour": "red"})
        self.assertEqual(delivery.publisher, writer.id)
        self.refused(writer.publish("news", 1, key="k", headers={"key": "l"}), ValueError)
        self.refused(writer.publish("news", 1, headers={"sender_principal": "root"}), BadRequest)
        self.refused(writer.publish("news", 1, headers={"routing": [{"client_id": 1000}]}), BadRequest)

    def test_theSenderIsNamedWhereTheOptionSaysSo(self) -> None:
        self.broker(settings=Settings(sender=Sender.PRINCIPAL), principals=PRINCIPALS)
        shop = self.client("shop")
        reader = self.done(shop.subscribe("orders.new"))
        self.done(shop.publish("orders.new", 1))
        self.assertEqual(self.done(reader.next()).sender, "shop")

    def test_aDurablePublicationIsConfirmedAfterItsCommit(self) -> None:
        journal = SlowJournal()
        self.broker(journal, {"durable": ("kept",)})
        client = self.client()
        confirmed = client.publish("kept", 1)
        self.turn()
        self.assertNoResult(confirmed)
        journal.commit()
        self.assertIsNone(self.done(confirmed))

    def test_aRefusalOfTheJournalIsTheError(self) -> None:
        journal = SlowJournal()
        self.broker(journal, {"durable": ("kept",)})
        client = self.client()
        confirmed = [client.publish("kept", 1), client.enqueue("work", 1)]
        journal.commit("the disk is full")
        for each in confirmed:
            self.assertIn("the disk is full", str(self.refused(each, NotRecorded)))

    def test_aRepeatedIdIsStoredOnce(self) -> None:
        journal = SlowJournal()
        self.broker(journal, {"durable": ("kept",)})
        several = [self.client().publish("kept", n, message_id="one") for n in (1, 2)]
        journal.commit()
        for each in several:
            self.done(each)
        self.assertEqual(len(journal.records), 1)

    def test_flushWaitsForAllPublications(self) -> None:
        journal = SlowJournal()
        self.broker(journal, {"durable": ("kept",)})
        client = self.client()
        client.publish("kept", 1)
        flushed = client.flush()
        self.turn()
        self.assertNoResult(flushed)
        journal.commit()
        self.done(flushed)

    def test_workStaysInItsQueueUntilItIsConsumed(self) -> None:
        self.broker()
        self.done(self.client().enqueue("work", {"job": 1}, message_id="7"))
        delivery = self.aBroker.consume(self.aBroker.join("minimq"), "work")
        assert delivery is not None
        self.assertEqual((delivery.message.payload, delivery.message.message_id), (msgpack.packb({"job": 1}), "7"))

    def test_aFullQueueRefusesWork(self) -> None:
        self.broker(rules={"limits": Limits(queueMessages=1)})
        client = self.client()
        self.aBroker.consume(self.aBroker.join("minimq"), "work")  # until then, the queue drops its oldest
        self.done(client.enqueue("work", 1))
        self.refused(client.enqueue("work", 2), NotKept)

    def test_forbiddenAndInvalidTopicsAreErrors(self) -> None:
        self.broker(principals=PRINCIPALS)
        shop = self.client("shop")
        self.done(shop.publish("orders.new", 1))
        for attempt in (shop.publish("news", 1), shop.enqueue("news", 1), shop.subscribe("news"), shop.broadcast(1)):
            self.refused(attempt, NotPermitted)
        self.assertEqual(self.aBroker.counts.events["error: 403"], 4)
        self.refused(self.client().publish("$sys/x", 1), Forbidden)
        self.refused(self.client().publish("", 1), InvalidTopic)

    def test_largeMessagesAndHeadersAreRefused(self) -> None:
        self.broker(settings=Settings(limits=Limits(message=2000)))
        client = self.client()
        reader = self.done(client.subscribe("t"))
        self.refused(client.publish("t", bytes(2000)), TooLarge)
        self.refused(client.publish("t", 1, headers={"long": "x" * 65_536}), TooLarge)
        self.refused(client.request(client.id, "/x", bytes(2000)), TooLarge)
        self.done(client.publish("t", bytes(1900)))
        self.assertEqual(reader.waiting, 1)

    def test_aLimitedRateDelaysTheConfirmation(self) -> None:
        self.broker(rate=Rate(1, 1))
        client = self.client()
        self.done(client.publish("t", 1))
        late = client.publish("t", 2)
        self.turn()
        self.assertNoResult(late)
        self.clock.advance(1)
        self.done(late)

    def test_aLimitedRateRefusesWhereTheOptionSaysSo(self) -> None:
        self.broker(rate=Rate(1, 1), refuses=True)
        client = self.client()
        self.done(client.publish("t", 1))
        self.refused(client.publish("t", 2), TooManyRequests)

    def test_anotherCodecMayBeUsed(self) -> None:
        self.broker()
        codec = Codec(lambda value: str(value).encode(), lambda payload: f"<{bytes(payload).decode()}>")
        client = self.client(codec=codec)
        reader = self.done(client.subscribe("t"))
        self.done(client.publish("t", 7))
        self.assertEqual(self.done(reader.next()).value, "<7>")


class SubscriptionTests(InProcessCase):
    """Iterators, functions and what ends them."""

    def test_anIteratorWaitsForTheNextMessage(self) -> None:
        self.broker()
        reader = self.done(self.client().subscribe("t"))
        waiting = reader.next()
        self.turn()
        self.assertNoResult(waiting)
        self.done(self.client().publish("t", 1))
        self.assertEqual(self.done(waiting).value, 1)

    def test_aTimeoutWithoutMessageIsNone(self) -> None:
        self.broker()
        reader = self.done(self.client().subscribe("t"))
        waiting = reader.next(timeout=3)
        self.clock.advance(2.9)
        self.assertNoResult(waiting)
        self.clock.advance(0.1)
        self.assertIsNone(self.done(waiting))
        self.assertEqual(self.clock.getDelayedCalls(), [])

    def test_closingEndsTheIteration(self) -> None:
        self.broker()
        client = self.client()
        reader = self.done(client.subscribe("t"))
        self.done(client.publish("t", 1))
        found: list[Any] = []

        async def readAll() -> None:
            async for each in reader:
                found.append(each.value)

        ended = Deferred.fromCoroutine(readAll())
        self.turn()
        reader.close()
        self.done(ended)
        (joined,) = self.aBroker.clients
        self.assertEqual((found, joined.subscriptions), ([1], {}))

    def test_overlappingSubscriptionsGetEachMessage(self) -> None:
        self.broker()
        client = self.client()
        readers = [self.done(client.subscribe(topic)) for topic in ("a.b", "a.*", "a.b")]
        self.done(client.publish("a.b", 1))
        self.assertEqual([each.waiting for each in readers], [1, 1, 1])
        readers[0].close()
        self.done(client.publish("a.b", 2))
        self.assertEqual([each.waiting for each in readers], [1, 2, 2])

    def test_aFunctionGetsMessagesOneAfterTheOther(self) -> None:
        self.broker()
        seen: list[Any] = []
        first: Deferred[None] = Deferred()

        def take(delivery: Any) -> Any:
            seen.append(delivery.value)
            return first if delivery.value == 1 else None

        client = self.client()
        self.done(client.subscribe("t", call=take))
        for value in (1, 2):
            self.done(client.publish("t", value))
        self.assertEqual(seen, [1])
        first.callback(None)
        self.turn()
        self.assertEqual(seen, [1, 2])

    def test_theExceptionOfAFunctionIsLoggedAndTheNextMessageFollows(self) -> None:
        self.broker()
        seen: list[Any] = []

        def take(delivery: Any) -> None:
            seen.append(delivery.value)
            raise ZeroDivisionError

        client = self.client()
        self.done(client.subscribe("t", call=take))
        self.done(client.publish_many("t", [1, 2]))
        self.turn()
        self.assertEqual((seen, len(self.flushLoggedErrors(ZeroDivisionError))), ([1, 2], 2))

    def test_aFunctionIsNotCalledAfterTheEnd(self) -> None:
        """That of the subscription, or of the client."""
        self.broker()
        for ends in (lambda client, reader: reader.close(), lambda client, reader: client.close()):
            got: list[int] = []
            waits: list[Deferred[None]] = []
            client = self.client()

            def take(delivery: Any, got: list[int] = got, waits: list[Deferred[None]] = waits) -> Any:
                got.append(delivery.value)
                waits.append(Deferred())
                return waits[-1]

            reader = self.done(client.subscribe("t", call=take))
            self.done(self.client().publish_many("t", [1, 2, 3]))
            self.turn()
            ends(client, reader)
            waits[0].callback(None)
            self.turn()
            self.assertEqual(got, [1])

    def test_aFunctionMayPublish(self) -> None:
        """It is called outside the broker's own operations."""
        self.broker()
        client = self.client()
        reader = self.done(client.subscribe("b"))
        self.done(client.subscribe("a", call=lambda delivery: client.publish("b", delivery.value + 1)))
        self.done(client.publish("a", 1))
        self.assertEqual(self.done(reader.next()).value, 2)

    def test_tooMuchUnreadEndsTheSubscriptionAndNoOther(self) -> None:
        self.broker()
        client = self.client(prefetch=4000)
        slow, fast = (self.done(client.subscribe(topic)) for topic in ("t", "#"))
        for _ in range(6):
            self.done(client.publish("t", bytes(700)))
            self.done(fast.next())
        values = []
        while slow.waiting:
            values.append(self.done(slow.next()))
        self.assertEqual(len(values), 5)
        self.assertIn("bytes were unread", str(self.refused(slow.next(), SubscriptionFailed)))
        self.assertEqual(self.aBroker.counts.events["dropped: slow consumer"], 1)
        self.assertEqual([*self.aBroker.clients][0].subscriptions.keys(), {"#"})

    def test_aSubscriptionMadeAfterAPublicationDoesNotGetIt(self) -> None:
        journal = SlowJournal()
        self.broker(journal, {"durable": ("kept",)})
        client = self.client()
        client.publish("kept", 1)
        subscribing = client.subscribe("kept")
        self.turn()
        self.assertNoResult(subscribing)
        journal.commit()
        self.assertEqual(self.done(subscribing).waiting, 0)

    def test_aSubscriptionMayStartInThePast(self) -> None:
        journal = SlowJournal()
        self.broker(journal, {"durable": ("kept",)})
        writer = self.client()
        writer.publish_many("kept", [1, 2, 3])
        journal.commit()
        reader = self.done(self.client().subscribe("kept", 2))
        writer.publish("kept", 4)
        journal.commit()
        self.turn()
        found = [self.done(reader.next()) for _ in range(reader.waiting)]
        self.assertEqual([(each.offset, each.value) for each in found], [(2, 2), (3, 3), (4, 4)])

    def test_wildcardsOfOthersAreErrorsAndDoubtfulTopicsWarnings(self) -> None:
        """The warning is at the line of the program."""
        self.broker()
        client = self.client()
        self.refused(client.subscribe("a.>"), ValueError)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", TopicWarning)
            self.done(client.subscribe("a..b"))
            for call in (client.publish, client.publish_many, client.enqueue):
                self.done(call("a..b", ["x"]))
        self.assertEqual([(each.category, each.filename) for each in caught], [(TopicWarning, __file__)] * 4)

    def test_aStartIsCheckedBeforeItIsUsed(self) -> None:
        self.broker()
        for start, kind in (("then", BadRequest), (-1, BadRequest), ("first", SubscriptionFailed)):
            self.refused(self.client().subscribe("kept", start), kind)

    def test_aNewSubscriberGetsTheRetainedMessage(self) -> None:
        journal = SlowJournal()
        self.broker(journal, {"retain": ("state",)})
        self.client().publish_many("state", ["old", "new"])
        journal.commit()
        reader = self.done(self.client().subscribe("state"))
        self.turn()
        self.assertEqual([self.done(reader.next()).value for _ in range(reader.waiting)], ["new"])

    def test_aReaderThatDoesNotReadIsNotFedFromTheJournal(self) -> None:
        """It loses nothing, however little it may hold."""
        journal = SlowJournal()
        self.broker(journal, {"durable": ("kept",)})
        writer = self.client()
        reader = self.done(self.client(prefetch=4000).subscribe("kept", "first"))
        for n in range(40):
            writer.publish("kept", [n, bytes(500)])
            journal.commit()
            self.turn()
        self.assertLess(reader.waiting, 40)
        self.assertEqual([self.done(reader.next()).value[0] for _ in range(40)], list(range(40)))

    def test_anOverrunSubscriptionEndsBesideOneThatReadsTheJournal(self) -> None:
        """Else its unread messages would stop the other one."""
        journal = SlowJournal()
        self.broker(journal, {"durable": ("kept",)})
        client = self.client(prefetch=4000)
        slow = self.done(client.subscribe("#"))
        reader = self.done(client.subscribe("kept", "first"))
        for n in range(0, 40, 10):
            self.client().publish_many("kept", [[each, bytes(500)] for each in range(n, n + 10)])
            journal.commit()
            self.turn()
        self.assertEqual([self.done(reader.next()).value[0] for _ in range(40)], list(range(40)))
        while slow.waiting:
            self.done(slow.next())
        self.refused(slow.next(), SubscriptionFailed)


class LifeTests(InProcessCase):
    """Rights, limits, listings and the end."""

    def test_interfaces(self) -> None:
        self.broker()
        self.client()
        (peer,) = (each.peer for each in self.aBroker.clients)
        for each in (ISubscriber, IPeer, IConversation):
            verifyObject(each, peer)

    def test_observersAndListingsShowTheClient(self) -> None:
        self.broker(principals=PRINCIPALS)
        witness = Witness()
        self.aBroker.observers.add(witness)
        client = self.client("shop", name="till")
        (row,) = self.done(self.client().ask("/broker/clients", {"limit": 1}))["clients"]
        self.assertEqual(
            [row[name] for name in ("client_id", "dialect", "principal", "address")],
            [client.id, "fleximq", "shop", "in-process"],
        )
        client.close()
        self.assertIn(("joined", client.id), witness.told)
        self.assertIn(("left", client.id, "client closed"), witness.told)

    def test_trafficIsCounted(self) -> None:
        self.broker()
        client = self.client()
        self.done(client.subscribe("t"))
        self.done(client.publish_many("t", [1, 2]))
        traffic = self.aBroker.traffic.totals()["fleximq"]
        self.assertEqual((traffic.messagesIn, traffic.messagesOut), (2, 2))
        self.assertGreater(traffic.bytesIn, 60)
        client.close()
        self.assertEqual(self.aBroker.traffic.totals()["fleximq"].messagesOut, 2)

    def test_rightsMustBeNamedAndNamesValid(self) -> None:
        self.broker()
        for wrong in ("", "anonymous", " x"):
            self.assertRaises(SettingError, self.client, wrong)
        self.assertRaises(SettingError, self.client, prefetch=0)
        for rights in (None, 5, type(EVERYTHING)):
            self.assertRaises(SettingError, self.client, rights)
        for name in (5, 257 * "n"):
            self.assertRaises(SettingError, self.client, name=name)
        self.assertEqual(len(self.aBroker.clients), 0)

    def test_aNameNeedsTheRightToServe(self) -> None:
        self.broker(principals=PRINCIPALS)
        self.client("shop", name="till")
        self.assertRaises(NotPermitted, self.client, "shop", name="bank")
        self.assertEqual(len(self.aBroker.clients), 1)

    def test_aBannedPrincipalCannotConnect(self) -> None:
        bans = Bans()
        self.broker(principals=PRINCIPALS, bans=bans)
        bans.add(Ban("principal", "shop", 1.0, "", "root"))
        self.assertRaises(JoinRejected, self.client, "shop")
        self.client("other")
        bans.remove("principal", "shop")
        self.client("shop")
        self.assertEqual(len(self.aBroker.clients), 2)

    def test_theMaximumOfClientsHoldsHereToo(self) -> None:
        self.broker(rules={"limits": Limits(clients=1)})
        self.client()
        self.assertRaises(NoCapacity, self.client)

    def test_lostRightsEndASubscription(self) -> None:
        self.broker(principals=PRINCIPALS)
        reader = self.done(self.client("shop", name="till").subscribe("orders.new"))
        (joined,) = self.aBroker.clients
        permissions = Permissions(None, tables("principals", {"shop": {"publish": ["orders.#"]}}))
        self.aBroker.changeRights(joined, permissions.rightsOf(Principal("shop")))
        self.assertIn("not permitted any more", str(self.refused(reader.next(), SubscriptionFailed)))
        self.assertEqual(joined.service, "")

    def test_theOperatorMayEndAPrincipalsClient(self) -> None:
        self.broker(principals=PRINCIPALS)
        client = self.client("shop")
        reader = self.done(client.subscribe("orders.new"))
        (joined,) = self.aBroker.clients
        assert joined.conversation is not None
        joined.conversation.expel(Forbidden("disconnected by the operator"))
        self.refused(reader.next(), Forbidden)
        self.refused(client.publish("orders.new", 1), Forbidden)
        self.assertEqual(len(self.aBroker.clients), 0)

    def test_givenRightsDoNotFollowThePermissions(self) -> None:
        self.broker(principals=PRINCIPALS)
        self.client(ALL_BUT_ADMIN)
        (joined,) = self.aBroker.clients
        self.assertIsNone(joined.conversation)

    def test_afterItsEndEveryMethodIsAConflict(self) -> None:
        self.broker()
        client = self.client()
        reader = self.done(client.subscribe("t"))
        asked = client.request(self.client(name="deaf").id, "/x")
        self.done(client.close())
        self.done(client.close())
        self.assertIsNone(self.done(reader.next()))
        self.refused(asked, Conflict)
        for attempt in (client.publish("t", 1), client.subscribe("t"), client.notify(1000, "/x"), client.ask("/x")):
            self.refused(attempt, Conflict)
        self.assertRaises(Conflict, client.serve, "/x", print)
        self.assertRaises(Conflict, client.notifications)

    def test_allAreClosedTogether(self) -> None:
        self.broker()
        clients = [self.client() for _ in range(3)]
        self.done(clients[0].close())
        self.clients.closeAll()
        self.assertEqual(len(self.aBroker.clients), 0)

    def test_aBlockClosesTheClient(self) -> None:
        self.broker()

        async def use() -> None:
            async with self.client() as client:
                await client.publish("t", 1)
                async with await client.subscribe("t"):
                    pass

        self.done(Deferred.fromCoroutine(use()))
        self.assertEqual(len(self.aBroker.clients), 0)
