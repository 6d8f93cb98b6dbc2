"""Every page shows what the API says, as text, whatever names and payloads contain."""

import re
from typing import Any

from tests.console.browser import PHONE
from tests.console.case import PAGES, ConsoleCase
from tests.console.scene import DEAD, FLYING, HOSTILE, MAILS, SCHEDULED, SCRIPT, address


class PagesTests(ConsoleCase):
    """What is shown against what the API says."""

    def test_allPages(self) -> None:
        """Each page is shown without an error of a script, a request to another origin, or markup from data.

        At 400 pixels none of them is wider than the window.
        """
        for segments, text in PAGES:
            page = self.show(*segments, until=text, size=PHONE)
            self.assertEqual(page.locator("main img, main script, main i, main b").count(), 0, segments)
            self.assertLessEqual(page.evaluate("document.documentElement.scrollWidth"), PHONE["width"], segments)
            self.assertEqual(page.locator("main .problem:visible").count(), 0, segments)
            self.assertEqual(page.locator("main h1").count(), 1, segments)

    def test_queues(self) -> None:
        """The list has all queues but those of dead letters, with their numbers."""
        page = self.show("queues", until=HOSTILE)
        rows = {row["Queue"]: row for row in self.rows(page, "Queues")}
        said = {row["topic"]: row for row in self.api("queues")["queues"] if not row["dead_letters"]}
        self.assertEqual(rows.keys(), said.keys())
        mails = rows["mails"]
        self.assertEqual((mails["Waiting"], mails["In flight"]), (str(MAILS - DEAD - FLYING), str(FLYING)))
        self.assertEqual(mails["Consumers"], str(said["mails"]["consumers"]))
        self.assertEqual(rows[HOSTILE]["State"], "nobody consumes")

    def test_queuesAreFilteredByTheBroker(self) -> None:
        """The filter asks the broker, which searches all queues."""
        page = self.show("queues", until=HOSTILE)
        with page.expect_response(lambda answer: "contains=MAIL" in answer.url):
            page.get_by_label("Filter by name").fill("MAIL")
        self.eventually(page, lambda: [row["Queue"] for row in self.rows(page, "Queues")] == ["mails"])

    def test_theMenuHasOneLine(self) -> None:
        """In a narrow window, the menu stays one line."""
        page = self.show("queues", until=HOSTILE, size={"width": 800, "height": 700})
        self.assertLess(page.locator("#nav").bounding_box()["height"], 50)

    def test_aQueueIsSorted(self) -> None:
        """A click on the head of a column sorts by it, and a second one turns the order."""
        page = self.show("queues", until=HOSTILE)
        page.get_by_role("button", name="Waiting").click()
        falling = [int(row["Waiting"]) for row in self.rows(page, "Queues")]
        self.assertEqual(page.locator("th[aria-sort]").get_attribute("aria-sort"), "descending")
        page.get_by_role("button", name="Waiting").click()
        rising = [int(row["Waiting"]) for row in self.rows(page, "Queues")]
        self.assertEqual((falling, rising), (sorted(falling, reverse=True), sorted(rising)))
        self.assertGreater(len(falling), 1)

    def test_peek(self) -> None:
        """The oldest messages are shown with their contents, and stay in the queue."""
        before = self.api("queues/detail?topic=mails")["messages"]
        page = self.show("queue", "mails", until="mailer")
        page.get_by_role("button", name="Show the oldest that wait").click()
        oldest = page.locator(".rows details").first
        oldest.locator("summary").click()
        first = self.api("queues/peek?topic=mails&limit=1")["messages"][0]
        self.assertIn(first["message_id"], oldest.inner_text())
        self.assertIn(SCRIPT, oldest.locator("pre").inner_text())
        page.get_by_role("button", name="Show those in flight").click()
        self.eventually(page, lambda: page.locator(".rows details").count() == FLYING)
        self.assertEqual(self.api("queues/detail?topic=mails")["messages"], before)

    def test_payloadsAsHexadecimalDigits(self) -> None:
        """Each payload can be shown as text and as hexadecimal digits."""
        page = self.show("queue", HOSTILE, until=HOSTILE)
        page.get_by_role("button", name="Show the oldest that wait").click()
        message = page.locator(".rows details").first
        message.locator("summary").click()
        self.assertEqual(message.locator("pre").inner_text(), SCRIPT)
        message.get_by_role("button", name="hex").click()
        self.assertIn(SCRIPT[:4].encode().hex(" "), message.locator("pre").inner_text())

    def test_schedules(self) -> None:
        """Single and recurring schedules have a row each."""
        page = self.show("schedules", until="heartbeat")
        self.assertEqual(len(self.rows(page, "Messages that wait for their time")), SCHEDULED)
        repeats = self.rows(page, "Recurring schedules")
        self.assertEqual({row["Name"] for row in repeats}, {row["name"] for row in self.api("schedules")["repeats"]})
        self.assertIn("every 24 h", [row["When"] for row in repeats])

    def test_aDeadLetterTellsItsStory(self) -> None:
        """A dead letter has the reason, the words of the consumer, its attempts and its contents."""
        page = self.show("letters", "mails", until="full <b>now</b>")
        self.assertEqual(page.locator(".rows details").count(), DEAD)
        letter = page.locator(".rows details").first
        letter.locator("summary").click()
        said = self.api("dead-letters?queue=mails&limit=1")["letters"][0]
        shown = letter.inner_text()
        for each in (said["message_id"], said["words"], said["reason"], said["consumer"], SCRIPT):
            self.assertIn(each, shown)
        exact = letter.locator("time").first.get_attribute("title")
        self.assertRegex(exact, r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d [+-]\d\d:\d\d$")

    def test_overview(self) -> None:
        """The charts have the numbers of the history, each in a table too; health is told in words."""
        page = self.show("overview", until="Running for")
        self.eventually(page, lambda: page.locator(".chart canvas").count() > 4)
        charts = page.locator(".chart")
        page.get_by_text("The numbers").first.click()
        self.eventually(page, lambda: any(row["received"] != "0/s" for row in self.rows(page, "Messages")))
        self.assertGreater(charts.count(), 4)
        for name in self.api("health")["checks"]:
            self.assertIn(f"{name}: ", page.locator("main").inner_text())

    def test_topics(self) -> None:
        """The broker filters and pages topics; the busiest ones are listed on top."""
        page = self.show("topics", until="sensors.000")
        self.eventually(page, lambda: {"orders.eu", "orders.us"} <= {
            row["Topic"] for row in self.rows(page, "Busiest topics")})  # fmt: skip
        page.get_by_label("Part of the name").fill("sensors.00")
        self.eventually(page, lambda: len(self.rows(page, "Topics")) == 10)
        self.assertEqual(self.rows(page, "Topics")[0]["Published"], "1")

    def test_topicsDoNotWaitForRates(self) -> None:
        """The list of topics and its filter do not wait for the busiest topics, which take a second to measure."""
        window = self.window()
        window.page.route("**/api/topics/busiest*", lambda route: None)
        page = window.open(self.base, "#/topics")
        page.get_by_text("sensors.000").wait_for()
        page.get_by_label("Part of the name").fill("sensors.00")
        self.eventually(page, lambda: len(self.rows(page, "Topics")) == 10)

    def test_storedMessages(self) -> None:
        """Messages of a durable topic are read from the journal by offset, and filtered."""
        page = self.show("topic", "orders.eu", until="Stored messages")
        page.get_by_label("Start at").select_option("first")
        page.get_by_role("button", name="Read").click()
        page.locator(".rows details").first.locator("summary").click()
        first = self.api("topics/messages?topic=orders.eu&from=first&limit=1")["messages"][0]
        self.assertIn(f"{first['offset']:,}", page.locator(".rows details summary").first.inner_text())
        self.assertIn('"order": 1', page.locator(".rows details pre").first.inner_text())

    def test_liveMessages(self) -> None:
        """Messages of a topic are shown as they arrive, until the user has enough."""
        page = self.show("topic", "orders.eu", until="Stored messages")
        page.get_by_role("button", name="Show messages as they arrive").click()
        self.eventually(page, lambda: page.locator(".rows details").count() > 3)
        page.get_by_role("button", name="Stop").click()
        self.eventually(page, lambda: "orders.eu" not in [
            row["subscription"] for row in self.api("topics/detail?topic=orders.eu")["listening"]])  # fmt: skip

    def test_clients(self) -> None:
        """Each client has a row with its name; the filter is the broker's."""
        page = self.show("clients", until=HOSTILE)
        names = {row["Name"] for row in self.rows(page, "Clients")}
        self.assertEqual(names, {HOSTILE, "shop", "mailer", "feed"})
        page.get_by_label("Part of name or address").fill("mail")
        self.eventually(page, lambda: [row["Name"] for row in self.rows(page, "Clients")] == ["mailer"])

    def test_clientsWithoutBans(self) -> None:
        """Who may not see bans sees clients alone."""

        def withoutBans(route: Any) -> None:
            answer = route.fetch()
            said = answer.json()
            rights = {key: [path for path in paths if "bans" not in path] for key, paths in said["rights"].items()}
            route.fulfill(response=answer, json={**said, "rights": rights})

        window = self.window()
        window.page.route("**/console/session", withoutBans)
        main = window.open(self.base, address("clients")).locator("main")
        main.get_by_text(HOSTILE).first.wait_for()
        self.assertNotIn("Bans", main.inner_text())
        self.assertNotIn("false", main.inner_text())

    def test_rights(self) -> None:
        """The question is answered in words."""
        page = self.show("rights", until="Rights")
        page.get_by_label("May").fill("anonymous")
        page.get_by_label("with").fill("orders.eu")
        page.get_by_role("button", name="Ask").click()
        page.locator("main .mark").get_by_text(re.compile("yes|no")).wait_for()

    def test_settings(self) -> None:
        """Each setting in effect has a row with its origin."""
        page = self.show("settings", until="durable")
        rows = {row["Option"]: row for row in self.rows(page, "Settings")}
        self.assertEqual(rows.keys(), self.api("settings")["settings"].keys())
        self.assertEqual(rows["durable"]["Value"], "orders.*")
        self.assertIn("command line", rows["durable"]["From"])

    def test_journal(self) -> None:
        """Segments and retention are those of the API."""
        page = self.show("journal", until="writable")
        self.assertEqual(len(self.rows(page, "Segments")), len(self.api("journal")["segments"]))
