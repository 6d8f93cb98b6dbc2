"""Requests, answers, notifications and broadcasts of clients in the process."""

from typing import Any

import msgpack
from twisted.internet.defer import CancelledError, Deferred

from fleximq.client.errors import Answered, RequestFailed
from fleximq.errors import ClientNotFound, Conflict, NotFound, NotPermitted
from fleximq.wire.fleximq_frame import encodeMessage
from fleximq.wire.fleximq_header import MessageType
from tests.in_process.case import InProcessCase
from tests.slow_journal import SlowJournal


class RequestTests(InProcessCase):
    """From one client to another; each test calls a service."""

    def setUp(self) -> None:
        """A broker with a service."""
        self.broker()
        self.service = self.client(name="calc")
        self.asker = self.client()

    def test_theAnswerIsTheResultOfTheFunction(self) -> None:
        self.service.serve("/add", lambda request: sum(request.value))
        self.assertEqual(self.done(self.asker.request("calc", "/add", [1, 2])), 3)
        self.assertEqual(self.done(self.asker.request(self.service.id, "/add", [])), 0)

    def test_theFunctionMayAnswerLater(self) -> None:
        later: Deferred[str] = Deferred()
        self.service.serve("/wait", lambda request: later)
        answered = self.asker.request("calc", "/wait")
        self.turn()
        self.assertNoResult(answered)
        later.callback("done")
        self.assertEqual(self.done(answered), "done")

    def test_aFunctionMayAskAnother(self) -> None:
        self.service.serve("/one", lambda request: 1)

        async def two(request: Any) -> Any:
            return 1 + await self.service.request("calc", "/one")

        self.service.serve("/two", two)
        self.assertEqual(self.done(self.asker.request("calc", "/two")), 2)

    def test_theErrorOfAFunctionIsTheStatusOfItsAnswer(self) -> None:
        for error, status, words in (
            (Answered(422, "no number"), 422, "no number"),
            (NotFound("no such row"), 404, "no such row"),
            (ZeroDivisionError(), 500, "the service failed"),
            (CancelledError(), 500, "the service failed"),
        ):

            def fail(request: Any, error: Exception = error) -> None:
                raise error

            self.service.serve(f"/{error!r}", fail)
            failed = self.refused(self.asker.request("calc", f"/{error!r}"), RequestFailed)
            self.assertEqual((failed.status, failed.words), (status, words))
        self.assertEqual(len(self.flushLoggedErrors(ZeroDivisionError, CancelledError)), 2)

    def test_aPathThatIsNotServedIsAnswered404(self) -> None:
        self.assertEqual(self.refused(self.asker.request("calc", "/none"), RequestFailed).status, 404)

    def test_tooManyUnansweredRequestsAreAnswered503(self) -> None:
        self.service.serve("/wait", lambda request: Deferred())
        asked = [self.asker.request("calc", "/wait", bytes(1 << 20)) for _ in range(66)]
        self.turn()
        self.assertNoResult(asked[0])
        failed = [self.failureResultOf(each, RequestFailed).value.status for each in asked if each.called]
        self.assertEqual(set(failed), {503})

    def test_anUnknownTargetIsAnErrorAndAPathNoTarget(self) -> None:
        self.refused(self.asker.request("nobody", "/x"), ClientNotFound)
        self.refused(self.asker.request(999_999, "/x"), ClientNotFound)
        self.refused(self.asker.request("/x", "/x"), ValueError)

    def test_aTimeoutEndsTheWait(self) -> None:
        self.service.serve("/wait", lambda request: Deferred())
        asked = self.asker.request("calc", "/wait", timeout=2)
        self.turn()
        self.clock.advance(2)
        self.assertEqual(str(self.refused(asked, TimeoutError)), "no answer to /wait within 2 seconds")

    def test_theEndOfTheServiceFailsItsRequests(self) -> None:
        ended: list[Any] = []

        def wait(request: Any) -> Any:
            waiting: Deferred[None] = Deferred()
            return waiting.addErrback(ended.append)

        self.service.serve("/wait", wait)
        asked = self.asker.request("calc", "/wait")
        self.turn()
        self.service.close()
        self.assertEqual(self.refused(asked, RequestFailed).status, 502)
        self.assertTrue(ended[0].check(CancelledError))

    def test_theEndOfTheAskerFailsItsRequests(self) -> None:
        self.service.serve("/wait", lambda request: Deferred())
        asked = self.asker.request("calc", "/wait")
        self.asker.close()
        self.refused(asked, Conflict)

    def test_anAnswerOfAnotherClientIsIgnored(self) -> None:
        ids: list[str] = []

        def wait(request: Any) -> Any:
            ids.append(request.id)
            return Deferred()

        self.service.serve("/wait", wait)
        asked = self.asker.request(self.service.id, "/wait")
        self.turn()
        (id,) = ids
        stranger = self.client()
        fields = {
            "routing": [{"client_id": self.asker.id, "path": "/wait"}],
            "reqrep": {"type": "correlation", "id": id},
        }
        frame = encodeMessage(MessageType.REP, stranger.id, fields, msgpack.packb("forged"))
        broker = self.aBroker
        broker.reply(next(each for each in broker.clients if each.id == stranger.id), self.asker.id, id, frame, "/wait")
        self.turn()
        self.assertNoResult(asked)

    def test_servingTwiceOrNothingIsAnError(self) -> None:
        self.service.serve("/x", print)
        self.assertRaises(ValueError, self.service.serve, "/x", print)
        self.assertRaises(TypeError, self.service.serve, "/y", None)

    def test_theBrokerAnswersItsOwnPaths(self) -> None:
        self.assertIn("version", self.done(self.asker.ask("/broker/about")))
        self.assertIn("version", self.done(self.asker.request(1, "/broker/about")))
        self.refused(self.asker.ask("/broker/nothing"), NotFound)

    def test_theEndOfTheAskerFailsItsQuestionsToTheBroker(self) -> None:
        journal = SlowJournal()
        self.broker(journal)
        asker = self.client()
        journal.patient = True
        asked = asker.ask("/journal/advance", {"start": 0, "end": 9}, None)
        self.turn()
        self.assertNoResult(asked)
        asker.close()
        self.refused(asked, Conflict)


class NotificationTests(InProcessCase):
    """Messages without an answer."""

    def test_aNotificationReachesItsTargets(self) -> None:
        self.broker()
        sender, named, other = self.client(), self.client(name="watch"), self.client()
        boxes = [each.notifications() for each in (named, other, sender)]
        self.done(sender.notify(["watch", other.id], "/door", "open"))
        for box in boxes[:2]:
            said = self.done(box.next())
            self.assertEqual((said.path, said.value, said.sender), ("/door", "open", sender.id))
        self.assertEqual(boxes[2].waiting, 0)

    def test_aMissingTargetIsAnErrorAfterTheOthersWereNotified(self) -> None:
        self.broker()
        sender, other = self.client(), self.client()
        box = other.notifications()
        self.assertIn("'ghost'", str(self.refused(sender.notify(["ghost", other.id], "/x"), ClientNotFound)))
        self.assertEqual(box.waiting, 1)

    def test_aBroadcastReachesAllOthers(self) -> None:
        self.broker()
        sender, other = self.client(), self.client()
        boxes = [each.notifications() for each in (sender, other)]
        self.done(sender.broadcast({"stop": True}))
        self.assertEqual([each.waiting for each in boxes], [0, 1])
        said = self.done(boxes[1].next())
        self.assertEqual((said.path, said.value), (None, {"stop": True}))

    def test_rightsApply(self) -> None:
        self.broker(principals={"shop": {"notify": ["/door"]}})
        shop, other = self.client("shop"), self.client()
        other.notifications()
        self.done(shop.notify(other.id, "/door"))
        for attempt in (shop.notify(other.id, "/else"), shop.broadcast(), shop.request(other.id, "/door")):
            self.refused(attempt, NotPermitted)
