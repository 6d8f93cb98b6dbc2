"""A worker by HTTP."""

import json
from typing import Any
from unittest.mock import patch

import msgpack

from fleximq.broker.consumers import principal_worker, takes
from fleximq.broker.envelope import ConnectedClient, Envelope, MessageSource
from fleximq.rights import Action
from fleximq.security.permissions import Rights
from fleximq.values.message import Content, Message
from tests.dialects.conversations import Peer, makeContext
from tests.dialects.http.case import HttpCase, answers, post, request
from tests.slow_journal import SlowJournal


class TakingCase(HttpCase):
    """A publisher beside the workers."""

    def setUp(self) -> None:
        super().setUp()
        self.publisher: ConnectedClient = self.broker.join("fleximq")
        self.broker.queues.ensure("q")

    def publish(self, *values: Any, topic: str = "q") -> None:
        """Publish to a topic that has a queue."""
        envelope = Envelope(self.broker.topicFor(self.publisher, topic), self.publisher, MessageSource())
        messages = [Message(msgpack.packb(each), Content.MESSAGEPACK) for each in values]
        self.context.turn.open = True
        self.broker.produce(envelope, messages, len(messages))
        self.context.turn.flush()

    def take(self, query: str = "", peer: Peer | None = None) -> list[dict[str, Any]]:
        """Return the jobs of one take."""
        [(status, value)] = answers((peer or self.join()).ask(request(f"POST /queues/q/take{query}")))
        self.assertEqual(status, 200)
        jobs: list[dict[str, Any]] = value["jobs"]
        return jobs

    def settle(self, peer: Peer | None = None, **kinds: Any) -> Any:
        """Return the answer of a settlement."""
        [answer] = answers((peer or self.join()).ask(post("/queues/q/settle", kinds)))
        return answer


class TakeTests(TakingCase):
    """Taking jobs."""

    def test_aJobAsAnObject(self) -> None:
        self.publish({"to": "bob"})
        [job] = self.take()
        tag = job.pop("tag")
        self.assertIsInstance(tag, str)
        self.assertEqual(job, {"topic": "q", "message_id": "id-1", "attempt": 1, "value": {"to": "bob"}})

    def test_whatWasEnqueuedByHttp(self) -> None:
        peer = self.join()
        peer.ask(post("/queues/q", 7, "FlexiMQ-Key: k", "FlexiMQ-Message-Id: m"))
        [job] = self.take(peer=peer)
        self.assertEqual((job["value"], job["key"], job["message_id"]), (7, "k", "m"))

    def test_noneWithoutMessages(self) -> None:
        self.assertEqual(self.take("?most=5"), [])

    def test_oneThatWaits(self) -> None:
        peer = self.join()
        self.assertEqual(peer.ask(request("POST /queues/q/take?wait=20&most=9")), b"")
        self.publish(1, 2)
        [(_, value)] = answers(peer.heard())
        self.assertEqual([job["value"] for job in value["jobs"]], [1, 2])

    def test_inVain(self) -> None:
        peer = self.join()
        peer.say(request("POST /queues/q/take?wait=20"))
        self.clock.advance(20)
        self.assertEqual(answers(peer.heard()), [(200, {"jobs": []})])
        self.assertFalse(peer.closed)

    def test_wrongArguments(self) -> None:
        for query in (
            "most=0",
            "most=1.5",
            "most=x",
            "most=1e9",
            "most=inf",
            "most=nan",
            "wait=-1",
            "wait=inf",
            "lease=0",
            "lease=nan",
            "a=1",
        ):
            [(status, value)] = answers(self.join().ask(request(f"POST /queues/q/take?{query}")))
            self.assertEqual((status, [*value]), (400, ["error"]), query)

    def test_tooManyThatWait(self) -> None:
        with patch.object(takes, "MOST_WAITING_EACH", 1):
            self.join().say(request("POST /queues/q/take?wait=20"))
            self.assertIn(b" 429 ", self.join().ask(request("POST /queues/q/take?wait=20")))

    def test_ofAQueueThatDoesNotExist(self) -> None:
        """It is not made by mistake; only by those who ask for it."""
        [(status, value)] = answers(self.join().ask(request("POST /queues/mials/take?wait=20")))
        self.assertEqual((status, value["error"]), (404, "there is no queue 'mials'; with create=true it is made"))
        self.assertEqual([each.name for each in self.broker.queues], ["q"])
        answer = answers(self.join().ask(request("POST /queues/mails/take?create=true")))
        self.assertEqual((answer, len(self.broker.queues)), ([(200, {"jobs": []})], 2))

    def test_onlyThoseWhoMayConsumeLearnIfItExists(self) -> None:
        peer = self.join()
        self.take(peer=peer)
        for each in self.broker.clients:
            each.rights = Rights({Action.PUBLISH: ["#"]})
        found = [answers(peer.ask(request(f"POST /queues/{each}/take")))[0][0] for each in ("q", "other")]
        self.assertEqual(found, [403, 403])


class GoneTests(TakingCase):
    """Workers that are gone."""

    def test_oneThatLeavesWhileItWaitsGetsNothing(self) -> None:
        peer = self.join()
        peer.say(request("POST /queues/q/take?wait=20"))
        peer.leave()
        self.publish(1)
        self.assertEqual(len(self.take()), 1)

    def test_oneThatEndsItsInputIsAnsweredAtOnce(self) -> None:
        peer = self.join()
        peer.say(request("POST /queues/q/take?wait=20")).endInput()
        self.assertEqual(answers(peer.heard()), [(200, {"jobs": []})])
        self.assertTrue(peer.closed)

    def test_whenTheBrokerStopsItIsAnswered(self) -> None:
        peer = self.join()
        peer.say(request("POST /queues/q/take?wait=20"))
        for session in list(self.context.sessions):
            session.dismiss()
        self.assertEqual(answers(peer.heard()), [(200, {"jobs": []})])

    def test_jobsThatWereNotSentReturnWhenTheConnectionIsLost(self) -> None:
        peer = self.join()
        peer.say(request("POST /queues/q/take?wait=20"))
        peer.producer.pauseProducing()
        self.publish(1)
        self.assertEqual(peer.heard(), b"")
        peer.leave()
        self.assertEqual([job["attempt"] for job in self.take()], [2])

    def test_theyReturnAlsoWhenAnotherRequestFollowed(self) -> None:
        """A second take, which is answered before the connection is lost; jobs that were sent before do not return."""
        self.publish(1)
        peer = self.join()
        self.assertEqual([len(self.take(peer=peer)) for _ in range(2)], [1, 0])
        self.publish(2)
        peer.producer.pauseProducing()
        peer.say(request("POST /queues/q/take") + request("POST /queues/q/take"))
        self.turn()
        peer.leave()
        self.assertEqual([(job["value"], job["attempt"]) for job in self.take("?most=9")], [(2, 2)])

    def test_jobsThatWereSentDoNot(self) -> None:
        peer = self.join()
        self.publish(1)
        self.assertEqual(len(self.take(peer=peer)), 1)
        peer.leave()
        self.assertEqual(self.take(), [])
        self.clock.advance(30)
        self.assertEqual(len(self.take()), 1)


class SettleTests(TakingCase):
    """Settling jobs."""

    def test_byAnotherConnection(self) -> None:
        self.publish(1)
        [job] = self.take()
        self.assertEqual(self.settle(ack=[job["tag"]]), (200, {"unsettled": []}))
        self.assertEqual(self.settle(ack=[job["tag"]]), (200, {"unsettled": [job["tag"]]}))

    def test_eachKind(self) -> None:
        self.publish(1, 2, 3)
        jobs = self.take("?most=3&lease=5")
        first, second, third = (job["tag"] for job in jobs)
        answer = self.settle(retry=[[first, 0.5]], reject=[[second, "broken"]], extend=[[third, 100]])
        self.assertEqual(answer, (200, {"unsettled": []}))
        self.clock.advance(6)
        self.assertEqual([job["value"] for job in self.take("?most=3")], [1])

    def test_oneTagTwice(self) -> None:
        """It counts once: the first one has settled the job."""
        self.publish(1, 2)
        one, two = (job["tag"] for job in self.take("?most=2"))
        answer = self.settle(ack=[one, one], retry=[[two, 0], [two, 0]])
        self.assertEqual(answer, (200, {"unsettled": []}))

    def test_manyInSeveralTurns(self) -> None:
        """No other client waits until all of them are rejected."""
        self.patch(principal_worker, "SLICE", 2)
        self.publish(1, 2, 3, 4, 5)
        tags = [job["tag"] for job in self.take("?most=5")]
        body = json.dumps({"reject": [[tag, "no"] for tag in ["x-1", *tags]]}).encode()
        peer = self.join()
        [queue] = self.broker.queues
        self.assertEqual((peer.ask(request("POST /queues/q/settle", body)), queue.inFlight), (b"", 4))
        self.turn()
        self.assertEqual(answers(peer.heard()), [(200, {"unsettled": ["x-1"]})])
        self.assertEqual(queue.inFlight, 0)

    def test_aRetryAsTheQueueSays(self) -> None:
        self.publish(1)
        [job] = self.take()
        self.assertEqual(self.settle(retry=[[job["tag"], None]]), (200, {"unsettled": []}))
        self.assertEqual(len(self.take()), 1)

    def test_wrongBodies(self) -> None:
        for body in (
            b"", b"[]", b'{"ack":[1]}', b'{"ack":"x"}', b'{"other":[]}', b'{"reject":[["a"]]}', b'{"retry":[["a",-1]]}',
            b'{"extend":[["a",1e9]]}', json.dumps({"reject": [["a", "\u00fc" * 2049]]}).encode(),
        ):  # fmt: skip
            found = answers(self.join().ask(request("POST /queues/q/settle", body, "Content-Type: application/json")))
            self.assertEqual([status for status, _ in found], [400], body)

    def test_anErrorNamesThePartThatIsWrong(self) -> None:
        times = "[tag, seconds], each tag a string, with at most 65535 entries"
        keys = "a settlement must be a JSON object with keys of ack, retry, reject, extend, and no others"
        long = json.dumps({"reject": [["a", "no"], ["b", "x" * 4097]]})
        for body, sentence in (
            ("{", "the body of a settlement is not JSON"),
            ("[]", keys),
            ('{"ask":[]}', keys),
            ('{"ack":7}', "'ack' of a settlement must be a list of at most 65535 tags, each a string"),
            ('{"retry":[["a",1],["b","x"]]}', f"'retry' of a settlement must be a list of {times}, or null for the"
             " seconds of the queue; retry[1][1] is wrong"),
            ('{"extend":[["a"]]}', f"'extend' of a settlement must be a list of {times}; extend[0] is wrong"),
            (long, "'reject' of a settlement must be a list of [tag, words], with at most 65535 entries and 4096 bytes"
             " of words in each; reject[1][1] is wrong"),
        ):  # fmt: skip
            [answer] = answers(self.join().ask(request("POST /queues/q/settle", body.encode())))
            self.assertEqual(answer, (400, {"error": sentence}))

    def test_large(self) -> None:
        tags, most = [f'"a-{number}"' for number in range(takes.MOST_UNSETTLED + 1)], takes.MOST_UNSETTLED
        for count, size, status in ((most, 0, 200), (most + 1, 0, 400), (1, 1 << 20, 413)):
            body = f'{{"ack":[{",".join(tags[:count])}]{" " * size}}}'.encode()
            [(found, _)] = answers(self.join().ask(request("POST /queues/q/settle", body)))
            self.assertEqual(found, status, (count, size))

    def test_anotherPrincipalMayNot(self) -> None:
        self.publish(1)
        [job] = self.take()
        peer = self.join()
        peer.ask(request("POST /queues/q/take"))
        client = max(self.broker.clients, key=lambda each: each.id if each.conversation else 0)
        client.principal = "mallory"
        self.assertEqual(self.settle(peer, ack=[job["tag"]]), (200, {"unsettled": [job["tag"]]}))


class DurableTests(TakingCase):
    """Queues on disk."""

    def test_aSettlementThatIsNotOnDiskIsAnError(self) -> None:
        journal = SlowJournal()
        self.open(makeContext(self.clock, journal=journal, durable=("q",)))
        self.publisher = self.broker.join("fleximq")
        self.publish(1)
        journal.commit()
        self.turn()
        [job] = self.take()
        journal.readOnly = "no space left on device"
        status, value = self.settle(ack=[job["tag"]])
        self.assertEqual(status, 503)
        self.assertIn("no space left", value["error"])
