"""Reaching a broker: options, patience and words."""

import pickle
from threading import Event
from typing import Any, cast

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.errors import ConnectionLost, JoinRefused, RequestFailed
from fleximq.pipeline import broker_link, wait_notice
from fleximq.pipeline.broker_link import Behind, BrokerAddress, BrokerLink
from fleximq.pipeline.errors import BrokerGone, BrokerRefused, NotJournalled, OptionRefused

URL = "tcp://localhost:7890"


class PlaceTests(SynchronousTestCase):
    """Options that say where and who."""

    def refuses(self, words: str, **options: str) -> str:
        """Check that options are refused, and return the sentence."""
        error = self.assertRaises(OptionRefused, BrokerAddress.of, {"url": URL, **options})
        self.assertIn(words, str(error))
        return str(error)

    def test_urlIsRequiredAndChecked(self) -> None:
        self.assertIn("'url' is missing", str(self.assertRaises(OptionRefused, BrokerAddress.of, {})))
        self.assertIn(
            "'url' cannot be used", str(self.assertRaises(OptionRefused, BrokerAddress.of, {"url": "nowhere"}))
        )

    def test_credentialsAreATokenOrAMapInJson(self) -> None:
        self.assertIsNone(BrokerAddress.of({"url": URL}).credentials)
        self.assertEqual(BrokerAddress.of({"url": URL, "token": "s"}).credentials, {"type": "token", "token": "s"})
        written = '{"type": "basic", "username": "a"}'
        self.assertEqual(
            BrokerAddress.of({"url": URL, "credentials": written}).credentials, {"type": "basic", "username": "a"}
        )

    def test_credentialsAreNotShown(self) -> None:
        for bad in ("s3cret", '["s3cret"]', '{"s3cret": 1}'):
            self.assertNotIn("s3cret", self.refuses("'credentials' must be a JSON map", credentials=bad))
        self.assertNotIn("s3cret", repr(BrokerAddress.of({"url": URL, "token": "s3cret"})))

    def test_timeoutHasLimits(self) -> None:
        self.assertEqual(BrokerAddress.of({"url": URL, "brokerTimeout": "0"}).timeout, 0)
        self.assertEqual(BrokerAddress.of({"url": URL, "brokerTimeout": "86400"}).timeout, 86_400)
        for bad in ("-1", "86401", "nan", "soon"):
            self.refuses("'brokerTimeout'", brokerTimeout=bad)

    def test_placeCanBePickled(self) -> None:
        place = BrokerAddress.of(
            {"url": URL, "token": "s", "caFile": "ca.pem", "certFile": "c.pem", "keyFile": "k.pem"}
        )
        self.assertEqual(pickle.loads(pickle.dumps(place)), place)

    def test_unreadableFilesAreRefusedBeforeConnecting(self) -> None:
        place = BrokerAddress.of({"url": "tls://localhost:7891", "caFile": "/nowhere/ca.pem"})
        self.assertIn("'caFile'", str(self.assertRaises(OptionRefused, place.connect)))

    def test_urlOfAnotherKindIsRefusedWhenUsed(self) -> None:
        self.assertRaisesRegex(
            OptionRefused, "that a broker has started", BrokerAddress.of({"url": "stdio://"}).connect
        )


class FakeClient:
    """Answers with what it was given, raising errors."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers = answers
        self.closed = False

    def ask(self, path: str, arguments: Any) -> Any:
        """Give the next answer."""
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self, timeout: float) -> None:
        """Remember it."""
        self.closed = True


class FakePlace:
    """Connects as often as asked, to clients that share their answers."""

    url = URL
    timeout = 10.0
    addresses = 1

    def __init__(self, answers: list[Any], connecting: list[Exception | None] | None = None) -> None:
        self.answers = answers
        self.connecting = connecting or []
        self.clients: list[FakeClient] = []

    def connect(self) -> FakeClient:
        """Return a client, or raise what is due."""
        error = self.connecting.pop(0) if self.connecting else None
        if error is not None:
            raise error
        self.clients.append(FakeClient(self.answers))
        return self.clients[-1]


class LinkTests(SynchronousTestCase):
    """Asking, and asking again."""

    def link(self, answers: list[Any], connecting: list[Exception | None] | None = None) -> BrokerLink:
        """Return a link whose time passes by sleeping only."""
        self.time = 0.0
        self.place = FakePlace(answers, connecting)

        def sleep(seconds: float) -> None:
            self.time += seconds

        return BrokerLink(cast(BrokerAddress, self.place), sleep, lambda: self.time)

    def test_oneConnectionServesAllRequests(self) -> None:
        link = self.link([1, 2])
        self.assertEqual([link.ask("/a"), link.ask("/b")], [1, 2])
        self.assertEqual((len(self.place.clients), self.time), (1, 0))

    def test_lostConnectionAndRequestAreRepeated(self) -> None:
        link = self.link([ConnectionLost("gone"), TimeoutError("late"), "answer"], [None, ConnectionLost("no"), None])
        self.assertEqual(link.ask("/a"), "answer")
        self.assertEqual([client.closed for client in self.place.clients], [True, True, False])

    def test_busyBrokerIsAskedAgainOnTheSameConnection(self) -> None:
        link = self.link([RequestFailed(503, "the disk is full"), RequestFailed(429, "too many"), "answer"])
        self.assertEqual(link.ask("/a"), "answer")
        self.assertEqual(len(self.place.clients), 1)

    def test_lastReasonIsToldWhenTheTimeIsOver(self) -> None:
        link = self.link([], [ConnectionLost("nobody listens")] * 1000)
        error = self.assertRaises(BrokerGone, link.ask, "/a")
        self.assertEqual(str(error), f"the broker at {URL} is away: nobody listens")
        self.assertTrue(9 < self.time <= 10)

    def test_otherNodeIsAskedIfOneCannotServeLagsOrHangs(self) -> None:
        def check(answer: int) -> int:
            if answer < 5:
                raise Behind("4 is before 5")
            return answer

        def hang(seconds: float) -> None:
            self.time += 30

        answers = [RequestFailed(503, "not the owner"), 4, TimeoutError("late"), 5]
        link = self.link(answers)
        self.place.addresses = 4
        self.patch(link, "_sleep", hang)
        self.assertEqual(link.ask("/a", None, check), 5)
        self.assertEqual([client.closed for client in self.place.clients], [True, True, True, False])
        link = self.link([4] * 1000)
        self.place.addresses = 4
        error = self.assertRaises(BrokerGone, link.ask, "/a", None, check)
        self.assertEqual(str(error), f"no node at {URL} has all records: 4 is before 5")

    def test_waitIsLoggedWithTheBrokerAndTheLongestWait(self) -> None:
        self.patch(wait_notice, "SILENCE", 0.0)
        link = self.link(["answer"], [ConnectionLost("nobody listens"), None])
        noticed = Event()
        said: list[str] = []

        def warn(words: str) -> None:
            said.append(words)
            noticed.set()

        self.patch(broker_link._log, "warning", warn)
        self.patch(link, "_sleep", lambda seconds: noticed.wait(300))
        self.assertEqual(link.ask("/a"), "answer")
        [words] = said
        self.assertIn(f"waiting for the broker at {URL}, for 10 s at most: ", words)

    def test_fullJournalIsToldWhenTheTimeIsOver(self) -> None:
        error = self.assertRaises(BrokerRefused, self.link([RequestFailed(503, "disk full", "/a")] * 1000).ask, "/a")
        self.assertIn("503 service unavailable: disk full", str(error))

    def test_otherAnswersAreFinal(self) -> None:
        for error, kind, words in (
            (RequestFailed(409, "no such token", "/sink/commit"), BrokerRefused, "answered /sink/commit with 409"),
            (
                RequestFailed(503, "there is no journal: why", "/a"),
                NotJournalled,
                "has no journal; start it with --journal",
            ),
            (ConnectionLost("closed, and said before: 413 payload too large"), BrokerRefused, "--max-message"),
            (RequestFailed(413, "17 bytes, but at most 16", "/sink/stage"), BrokerRefused, "--max-message"),
        ):
            found = self.assertRaises(kind, self.link([error]).ask, "/a")
            self.assertIn(words, str(found))
            self.assertEqual(self.time, 0)

    def test_wrongCredentialsAreToldAtOnce(self) -> None:
        error = self.assertRaises(BrokerRefused, self.link([], [JoinRefused(604, "bad token")]).ask, "/a")
        self.assertEqual(
            str(error), f"the broker at {URL} does not let the pipeline in: 604 authentication failed: bad token"
        )
        self.assertEqual(self.time, 0)

    def test_leavingTheBlockClosesTheConnection(self) -> None:
        with self.link([1]) as link:
            link.ask("/a")
        self.assertEqual([client.closed for client in self.place.clients], [True])
