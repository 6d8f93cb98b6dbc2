"""What operators change by the pages: each change is asked once, made by the API, and its outcome told."""

import re
from typing import Any

from tests.console.case import ConsoleCase
from tests.console.scene import DEAD, HOSTILE, SCHEDULED, Scene, busyBroker


class ActsTests(ConsoleCase):
    """Changes, each on a broker of its own."""

    def setUp(self) -> None:
        """Start a broker that nobody else uses."""
        self.broker = busyBroker().__enter__()
        self.addCleanup(self.broker.__exit__, None, None, None)
        self.scene = Scene(self.broker.port()).__enter__()
        self.addCleanup(self.scene.__exit__)

    def told(self, page: Any, words: str) -> None:
        """Wait until the outcome of a change is told."""
        page.locator("#toasts").get_by_text(re.compile(f"{words}|Refused")).wait_for()
        self.assertIn(words, page.locator("#toasts").inner_text())

    def confirm(self, page: Any, action: str, typed: str = "") -> None:
        """Say yes in the dialog; with ``typed``, only after that text is it possible."""
        button = page.get_by_role("dialog").get_by_role("button", name=action, exact=True)
        if typed:
            self.assertTrue(button.is_disabled())
            page.get_by_role("dialog").get_by_role("textbox").fill(typed)
        button.click()

    def dead(self) -> int:
        """Return the number of dead letters of ``mails``."""
        waiting: int = self.api("dead-letters?queue=mails")["waiting"]
        return waiting

    def test_deadLetters(self) -> None:
        """Dead letters are returned and deleted one by one, by a filter, and all; a question may be refused."""
        page = self.show("letters", "mails", until="full <b>now</b>")
        letters = page.locator(".rows details")
        letters.first.locator("summary").click()
        letters.first.get_by_role("button", name="Return to the queue").click()
        if page.get_by_role("dialog").count():
            self.confirm(page, "Return")
        self.told(page, "1 dead letter is back in the queue.")
        self.eventually(page, lambda: letters.count() == DEAD - 1)
        letters.first.locator("summary").click()
        letters.first.get_by_role("button", name="Delete").click()
        page.get_by_role("dialog").get_by_role("button", name="Cancel").click()
        self.assertEqual(self.dead(), DEAD - 1)
        letters.first.get_by_role("button", name="Delete").click()
        self.confirm(page, "Delete")
        self.told(page, "1 dead letter is deleted.")
        self.eventually(page, lambda: letters.count() == DEAD - 2)
        self.assertEqual(self.dead(), DEAD - 2)
        words = self.api("dead-letters?queue=mails")["letters"][0]["words"]
        page.get_by_label("Words contain").fill(words)
        self.eventually(page, lambda: letters.count() == 1)
        page.locator("main h1 ~ .hint").get_by_text(f"1 of {DEAD - 2} match").wait_for()
        page.get_by_role("button", name="Return all that match").click()
        page.get_by_role("dialog").get_by_text("Return 1 dead letter?").wait_for()
        self.confirm(page, "Return them")
        self.eventually(page, lambda: self.dead() == DEAD - 3)
        page.get_by_label("Words contain").fill("")
        self.eventually(page, lambda: letters.count() == DEAD - 3)
        page.get_by_label("Died before").fill("2026-13-01")
        page.get_by_role("button", name="Delete all that match").click()
        self.assertEqual(page.get_by_role("dialog").count(), 0)
        page.get_by_label("Died before").fill("2999-01-01 08:00")
        page.get_by_role("button", name="Delete all that match").click()
        page.get_by_role("dialog").get_by_text(f"Delete {DEAD - 3} dead letters?").wait_for()
        self.confirm(page, "Delete them", typed="mails")
        self.told(page, f"{DEAD - 3} dead letters are deleted.")
        self.assertEqual(self.dead(), 0)

    def test_queue(self) -> None:
        """A queue is paused and resumed, and purged after its name was typed; a waiting message is cancelled."""
        page = self.show("queue", "mails", until="mailer")
        page.get_by_role("button", name="Pause").click()
        self.confirm(page, "Pause")
        self.told(page, "The queue is paused.")
        self.assertTrue(self.api("queues/detail?topic=mails")["paused"])
        page.get_by_role("button", name="Resume").click()
        self.told(page, "The queue goes on.")
        self.assertFalse(self.api("queues/detail?topic=mails")["paused"])
        page.get_by_role("button", name="Show the oldest that wait").click()
        page.locator(".rows summary").first.click()
        page.get_by_role("button", name="Cancel this message").first.click()
        self.confirm(page, "Cancel it")
        self.told(page, "The message is cancelled.")
        page.get_by_role("button", name="Purge").click()
        self.confirm(page, "Purge", typed="mails")
        self.told(page, "messages are discarded")
        self.assertEqual(self.api("queues/detail?topic=mails")["messages"], 0)

    def test_aQueueWithAHostileName(self) -> None:
        """Its messages, one of them published to the topic of its name, are moved to another queue."""
        page = self.show("queue", HOSTILE, until=HOSTILE)
        page.get_by_role("button", name="Move").click()
        page.get_by_role("dialog").get_by_label("To the queue").fill("mails")
        page.get_by_role("dialog").get_by_role("button", name="Move").click()
        self.told(page, "4 messages are moved")

    def test_schedules(self) -> None:
        """A message that waits for its time is cancelled; a recurring schedule is paused, resumed and removed."""
        page = self.show("schedules", until="heartbeat")
        page.get_by_role("button", name="Cancel", exact=True).first.click()
        self.confirm(page, "Cancel it")
        self.told(page, "The message is cancelled.")
        self.eventually(page, lambda: self.api("schedules")["waiting"] == SCHEDULED - 1)
        row = page.get_by_role("row").filter(has_text="heartbeat")
        row.get_by_role("button", name="Pause").click()
        self.told(page, "heartbeat is paused.")
        row.get_by_role("button", name="Resume").click()
        self.told(page, "heartbeat goes on.")
        row.get_by_role("button", name="Remove").click()
        self.confirm(page, "Remove")
        self.eventually(page, lambda: row.count() == 0)
        self.assertEqual([each["name"] for each in self.api("schedules")["repeats"]], ["nightly <i>report</i>"])

    def test_clients(self) -> None:
        """A client is disconnected."""
        page = self.show("client", "CLIENT", until="orders.#")
        before = self.scene.reader.id
        page.get_by_role("button", name="Disconnect").click()
        self.confirm(page, "Disconnect")
        self.told(page, "It is disconnected.")
        self.assertNotIn(before, [each["client_id"] for each in self.api("clients")["clients"]])

    def test_publishing(self) -> None:
        """A message is published by the page of its topic, and has an offset in a durable one."""
        page = self.show("topic", "orders.eu", until="Stored messages")
        page.get_by_text("A message to this topic").click()
        page.get_by_role("textbox", name="Message").fill('{"by": "hand"}')
        page.get_by_role("button", name="Publish").click()
        self.told(page, "Published at offset")
        found = self.api("topics/messages?topic=orders.eu&contains=hand&limit=1")["messages"]
        self.assertEqual([each["value"] for each in found], [{"by": "hand"}])
