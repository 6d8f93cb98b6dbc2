"""The paths of schedules."""

from dataclasses import replace
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.errors import BadRequest, BrokerError, Conflict, NotPermitted
from fleximq.limits import MOST_MILLISECONDS, NO_LIMITS
from fleximq.rights import Action
from tests.broker.parts import ask
from tests.broker.schedules.durable import Life


class OnlyTopic:
    """Rights to publish to one topic, to listen to another one, and to use the broker's paths."""

    def __init__(self, topic: str, listens: str = "") -> None:
        self.limits = NO_LIMITS
        self._rights = {(Action.PUBLISH, topic), (Action.SUBSCRIBE, listens)}

    def may(self, action: str, name: str) -> bool:
        """Permit it, or not."""
        return action == Action.READ or (action, name) in self._rights


class PathTests(SynchronousTestCase):
    """Requests of clients of a broker with the durable topic "t"."""

    def setUp(self) -> None:
        """Begin."""
        self.life = Life()
        self.addCleanup(self.life.stop)
        self.me = self.life.me

    def ask(self, path: str, **arguments: Any) -> Any:
        """Return the answer, after all commits; raise the one that is an error."""
        answers: list[Any] = []
        ask(self.life.broker, self.me, f"/schedule/{path}", arguments, answers.append)
        self.life.commit()
        [answer] = answers
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    def limited(self, topic: str, principal: str | None = None, listens: str = "") -> None:
        """Ask as a client that may publish to this topic only, and subscribe to another one."""
        self.me = self.life.broker.join("fleximq", principal=principal)
        self.me.rights = OnlyTopic(topic, listens)  # type: ignore[assignment]

    def test_addAnswersTheId(self) -> None:
        """Of durable and of volatile ones; the payload and the header are published."""
        first = self.ask("add", topic="t", payload={"n": 1}, header={"key": "k"}, deliver_in=10)
        second = self.ask("add", topic="v", payload=2, deliver_at=self.life.now() + 10)
        self.assertEqual(first, {"id": 1})
        self.assertGreaterEqual(second["id"], 1 << 52)
        self.life.finish()
        self.assertEqual(self.life.seen.payloads(), [b"\x81\xa1n\x01"])

    def test_thoseForWorkersAreDurable(self) -> None:
        """As their queues are, whatever the topic."""
        self.assertEqual(self.ask("add", topic="v", header={"queue": True}, deliver_in=10), {"id": 1})
        self.assertGreaterEqual(self.ask("add", topic="v", header={"queue": False}, deliver_in=10)["id"], 1 << 52)

    def test_addRefusesWrongArguments(self) -> None:
        """With a sentence about the argument."""
        for words, arguments in (
            ("either 'deliver_in' or 'deliver_at'", {"topic": "t"}),
            ("either 'deliver_in' or 'deliver_at'", {"topic": "t", "deliver_in": 1, "deliver_at": 1}),
            ("'deliver_in' must be a whole number", {"topic": "t", "deliver_in": -1}),
            ("'topic' must be a string", {"deliver_in": 1}),
            ("'header' must be a map", {"topic": "t", "deliver_in": 1, "header": []}),
            ("'header' must not have 'topic'", {"topic": "t", "deliver_in": 1, "header": {"topic": "u"}}),
            ("'priority' must be", {"topic": "t", "deliver_in": 1, "header": {"priority": 10}}),
            ("'queue' of a PUB", {"topic": "t", "deliver_in": 1, "header": {"queue": "u"}}),
            ("'message_id' must be", {"topic": "t", "deliver_in": 1, "header": {"message_id": [1]}}),
            ("'delivery' is set by", {"topic": "t", "deliver_in": 1, "header": {"delivery": {}}}),
            ("at most ten years ahead", {"topic": "t", "deliver_at": 1 << 62}),
            ("at most ten years ahead", {"topic": "t", "deliver_in": MOST_MILLISECONDS + 1}),
        ):
            with self.assertRaisesRegex(BadRequest, words):
                self.ask("add", **arguments)

    def test_listByDueTimeInPages(self) -> None:
        """Durable and volatile ones together."""
        now = self.life.now()
        for after, topic in ((30, "t"), (10, "v"), (20, "t"), (40, "v")):
            self.ask("add", topic=topic, payload="x", deliver_at=now + after)
        first = self.ask("list", limit=3)
        rows = [(row["due"] - now, row["topic"], row["kept"], row["bytes"]) for row in first["schedules"]]
        self.assertEqual(rows, [(10, "v", False, 2), (20, "t", True, 2), (30, "t", True, 2)])
        second = self.ask("list", limit=3, after=first["next"])
        self.assertEqual([row["due"] - now for row in second["schedules"]], [40])
        self.assertEqual((first["waiting"], second["next"]), (4, None))
        with self.assertRaises(BadRequest):
            self.ask("list", after="x")

    def test_listOfOneTopicOrOfNames(self) -> None:
        """A topic chooses single and recurring ones, the beginning of a name only recurring ones."""
        for topic in ("t", "v"):
            self.ask("add", topic=topic, payload=1, deliver_in=10)
            self.ask("repeat", name=f"mine/{topic}", topic=topic, every=1000)
        self.ask("repeat", name="other", topic="v", every=1000)

        def listed(**chosen: Any) -> tuple[list[str], list[str], str | None]:
            found = self.ask("list", **chosen)
            names = [row["name"] for row in found["repeats"]]
            return names, [row["topic"] for row in found["schedules"]], found["next"]

        self.assertEqual(listed(topic="v"), (["mine/v", "other"], ["v"], None))
        self.assertEqual(listed(prefix="mine/"), (["mine/t", "mine/v"], [], None))
        self.assertEqual(listed(prefix="mine/", topic="v", limit=1), (["mine/v"], [], None))
        self.assertRaises(BadRequest, self.ask, "list", topic=1)

    def test_listHidesOtherTopics(self) -> None:
        """Of messages and of recurring schedules."""
        self.ask("add", topic="t", deliver_in=10)
        self.ask("add", topic="v", deliver_in=10)
        self.ask("repeat", name="r", topic="t", every=1000)
        self.limited("v")
        found = self.ask("list")
        self.assertEqual(([row["topic"] for row in found["schedules"]], found["repeats"]), (["v"], []))

    def test_cancelById(self) -> None:
        """Once."""
        for topic in "tv":
            number = self.ask("add", topic=topic, deliver_in=10)["id"]
            self.assertEqual(self.ask("cancel", id=number), {"cancelled": True})
            self.assertEqual(self.ask("cancel", id=number), {"cancelled": False})
        with self.assertRaises(BadRequest):
            self.ask("cancel")

    def test_cancelNeedsTheTopicOrThePrincipal(self) -> None:
        """Principals may cancel their own schedules without other rights."""
        number = self.ask("add", topic="t", deliver_in=10)["id"]
        self.limited("v", listens="t")
        with self.assertRaises(NotPermitted):
            self.ask("cancel", id=number)
        self.limited("t", "ann")
        number = self.ask("add", topic="t", deliver_in=10)["id"]
        self.limited("v", "ann")
        self.assertEqual(self.ask("cancel", id=number), {"cancelled": True})

    def test_idsOfHiddenTopicsAreAnsweredAsUnknownOnes(self) -> None:
        """Otherwise a client could find out which ids are in use, and for which topics."""
        waits, past = (self.ask("add", topic="t", deliver_in=after)["id"] for after in (10_000, 10))
        self.life.clock.advance(1)
        self.life.commit()
        self.limited("v")
        for number in (waits, past, waits + 100):
            self.assertEqual(self.ask("cancel", id=number), {"cancelled": False})
        self.assertEqual(len(self.life.broker.schedules), 1)

    def test_repeatPublishesAgainAndAgain(self) -> None:
        """Until it is cancelled."""
        due = self.life.now() + 1000
        self.assertEqual(self.ask("repeat", name="r", topic="t", payload=1, every=1000), {"name": "r", "next": due})
        for _ in range(3):
            self.life.clock.advance(1)
            self.life.commit()
        self.assertEqual(self.life.seen.payloads(), [b"\x01"] * 3)
        [row] = self.ask("list")["repeats"]
        self.assertEqual((row["name"], row["every"], row["paused"], row["next"]), ("r", 1000, False, due + 3000))
        self.assertEqual(self.ask("cancel", name="r"), {"cancelled": True})
        self.assertEqual(self.ask("cancel", name="r"), {"cancelled": False})
        self.life.finish()
        self.assertEqual(len(self.life.seen.messages), 3)

    def test_repeatNeedsTheTopic(self) -> None:
        """Of the new definition, and of the one that it replaces."""
        self.ask("repeat", name="r", topic="t", every=1000)
        self.limited("v", listens="t")
        for topic in "tv":
            with self.assertRaises(NotPermitted):
                self.ask("repeat", name="r", topic=topic, every=1000)
        with self.assertRaises(NotPermitted):
            self.ask("pause", name="r")
        with self.assertRaises(NotPermitted):
            self.ask("cancel", name="r")

    def test_aRepeatOfAHiddenTopicIsAnsweredAsAnUnknownOne(self) -> None:
        """Only its name is not free; its topic remains unknown."""
        self.ask("repeat", name="r", topic="secret", every=1000)
        self.limited("v")
        self.assertEqual(self.ask("pause", name="r"), {"found": False})
        self.assertEqual(self.ask("cancel", name="r"), {"cancelled": False})
        error = self.assertRaises(NotPermitted, self.ask, "repeat", name="r", topic="v", every=1000)
        self.assertEqual((str(error), error.name), ("another principal has a recurring schedule 'r'", "r"))
        [running] = self.life.broker.schedules.repeats
        self.assertEqual((running.definition.topic, running.definition.paused), ("secret", False))

    def test_repeatRefusesWrongArguments(self) -> None:
        """With a sentence about the argument."""
        for words, arguments in (
            ("either 'every' or 'cron'", {}),
            ("either 'every' or 'cron'", {"every": 1000, "cron": "* * * * *"}),
            ("'every' must be", {"every": 999}),
            ("'every' must be", {"every": MOST_MILLISECONDS + 1}),
            ("'catch_up' must be none, last or all", {"every": 1000, "catch_up": "some"}),
            ("'paused' must be true or false", {"every": 1000, "paused": 1}),
            ("at most 16384 bytes", {"every": 1000, "payload": "x" * (16 << 10)}),
        ):
            with self.assertRaisesRegex(BadRequest, words):
                self.ask("repeat", name="r", topic="t", **arguments)

    def test_pauseAndContinue(self) -> None:
        """Due times of the pause are skipped."""
        self.ask("repeat", name="r", topic="t", every=1000, catch_up="all")
        self.assertEqual(self.ask("pause", name="r"), {"found": True})
        self.life.finish(10)
        self.assertEqual(self.life.seen.messages, [])
        self.assertEqual(self.ask("list")["repeats"][0]["next"], None)
        self.assertEqual(self.ask("pause", name="r", paused=False), {"found": True})
        self.life.clock.advance(1)
        self.life.commit()
        self.assertEqual(len(self.life.seen.messages), 1)
        self.assertEqual(self.ask("pause", name="other"), {"found": False})

    def test_settingsWin(self) -> None:
        """Clients cannot change a schedule of the settings."""
        self.ask("repeat", name="r", topic="t", every=1000)
        repeats = self.life.broker.schedules.repeats
        running = repeats.get("r")
        assert running is not None
        repeats.settle([replace(running.definition, isSetting=True)])
        with self.assertRaises(Conflict):
            self.ask("repeat", name="r", topic="t", every=2000)
        with self.assertRaises(Conflict):
            self.ask("cancel", name="r")
        repeats.settle([])
        self.assertIsNone(repeats.get("r"))
