"""Messages for later by HTTP: their ids, and how they are cancelled."""

from typing import Any

from fleximq.rights import Action
from fleximq.security.permissions import Rights
from tests.dialects.conversations import makeContext
from tests.dialects.http.case import HttpCase, answers, post, request
from tests.slow_journal import SlowJournal


class SchedulingTests(HttpCase):
    """DELETE /schedules/ID."""

    def schedule(self, *lines: bytes, query: str = "delay=60") -> list[int]:
        body = b"\n".join(lines) or b"1"
        line = f"POST /queues/q?{query}"
        [(status, value)] = answers(self.join().ask(request(line, body, "Content-Type: application/x-ndjson")))
        self.assertEqual((status, [*value]), (200, ["schedules"]))
        found: list[int] = value["schedules"]
        return found

    def cancel(self, number: Any) -> Any:
        [answer] = answers(self.join().ask(request(f"DELETE /schedules/{number}")))
        return answer

    def test_aMessageForLaterHasAnIdByWhichItIsCancelled(self) -> None:
        [number] = self.schedule()
        for isThere in (True, False):
            self.assertEqual(self.cancel(number), (200, {"cancelled": isThere}))
        self.clock.advance(60)
        self.assertEqual([*self.broker.queues], [])

    def test_eachLineHasOne(self) -> None:
        numbers = self.schedule(b"1", b"2", b"3")
        self.assertEqual((len({*numbers}), len(self.broker.schedules)), (3, 3))
        self.cancel(numbers[1])
        self.clock.advance(60)
        self.assertEqual(self.broker.queues.existing("q").depth, 2)

    def test_aDurableOne(self) -> None:
        """The answers wait for the journal."""
        journal = SlowJournal()
        self.open(makeContext(self.clock, journal=journal, durable=("q",)))
        peer = self.join()
        self.assertEqual(peer.ask(post("/queues/q?delay=60&message_id=m", 1)), b"")
        journal.commit()
        self.turn()
        [(_, value)] = answers(peer.heard())
        [number] = value["schedules"]
        self.assertEqual(answers(peer.ask(post("/queues/q?delay=60&message_id=m", 1))), [(200, {})])
        self.assertEqual(len(self.broker.schedules), 1)
        self.assertEqual([*self.broker.schedules.inJournal.needed()], [number])

    def test_wrongIds(self) -> None:
        for number in ("x", "-1", "1.5", "9" * 20, "%D9%A3"):
            status, value = self.cancel(number)
            self.assertEqual(status, 400)
            self.assertIn("but must be a whole number from 0 to 9007199254740991", value["error"])

    def test_othersNeedTheRightToPublish(self) -> None:
        [number] = self.schedule()
        peer = self.join()
        peer.ask(request("DELETE /schedules/1"))
        for each in self.broker.clients:
            each.rights = Rights({Action.CONSUME: ["#"]})
        self.assertIn(b" 403 ", peer.ask(request(f"DELETE /schedules/{number}")))
        self.assertEqual(len(self.broker.schedules), 1)

    def test_anIdOfAHiddenTopicIsAnsweredAsAnUnknownOne(self) -> None:
        [number] = self.schedule()
        peer = self.join()
        peer.ask(request("DELETE /schedules/1"))
        for each in self.broker.clients:
            each.rights = Rights({Action.PUBLISH: ["other"]})
        unknown, hidden = (peer.ask(request(f"DELETE /schedules/{each}")) for each in (number + 1, number))
        self.assertEqual((unknown, len(self.broker.schedules)), (hidden, 1))
