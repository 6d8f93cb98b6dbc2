"""The frame around all pages: signing in and out, outages, the theme, and the keyboard."""

from pathlib import Path
from typing import Any

from tests.broker_process import BrokerProcess
from tests.console.browser import BrowserCase
from tests.console.case import ConsoleCase
from tests.security.secrets_on_disk import CHEAP

SETTINGS = """\
auth = ["passwords:{folder}/passwords"]

[principals.ann]
publish = true
subscribe = true
read = ["#"]
admin = ["#"]

[principals.bob]
read = ["healthz", "api/queues", "api/queues/#", "api/health"]
subscribe = ["#"]
"""


class OutageTests(BrowserCase):
    """A broker that is started again below an open console."""

    def test_theConsoleGoesOn(self) -> None:
        """It says that the broker does not answer, and goes on by itself when it does."""
        window = self.window()
        with BrokerProcess() as broker:
            port = broker.port()
            page = window.open(f"http://127.0.0.1:{port}", "#/overview")
            page.get_by_text("Running for").wait_for()
        page.get_by_role("alert").get_by_text("The broker does not answer").wait_for()
        page.get_by_text("no answer").wait_for()
        with BrokerProcess("--listen", f"tcp:{port}:interface=127.0.0.1"):
            page.get_by_text("The broker answers again.").wait_for()
            page.get_by_role("alert").get_by_text("The broker does not answer").wait_for(state="hidden")
            page.locator("#health").get_by_text("healthy").wait_for()

    def test_anOutageAtTheBeginning(self) -> None:
        """A console whose first request failed asks again."""
        with BrokerProcess() as broker:
            window = self.window()
            window.page.route("**/console/session", lambda route: route.abort(), times=1)
            page = window.open(f"http://127.0.0.1:{broker.port()}")
            page.get_by_text("There is no queue yet.").wait_for()


class SignInTests(BrowserCase):
    """A broker that asks for passwords."""

    def setUp(self) -> None:
        """Start it."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        (folder / "passwords").write_text("".join(f"{name}:{CHEAP.hash(name)}\n" for name in ("ann", "bob")))
        (folder / "fleximq.toml").write_text(SETTINGS.format(folder=folder))
        self.broker = BrokerProcess("--config", str(folder / "fleximq.toml")).__enter__()
        self.addCleanup(self.broker.__exit__, None, None, None)

    def signIn(self, name: str, password: str) -> Any:
        """Open the console, and send the form."""
        page = self.window().open(f"http://127.0.0.1:{self.broker.port()}", "#/queues")
        page.get_by_label("Name").fill(name)
        page.get_by_label("Password").fill(password)
        page.get_by_role("button", name="Sign in").click()
        return page

    def test_wrongPassword(self) -> None:
        """A wrong password is refused in words, and a right one is accepted then."""
        page = self.signIn("ann", "wrong")
        page.get_by_role("alert").get_by_text("These credentials are not valid.").wait_for()
        page.get_by_label("Password").fill("ann")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("There is no queue yet.").wait_for()

    def test_signOut(self) -> None:
        """The sign-out ends the session, and asks for credentials again."""
        page = self.signIn("ann", "ann")
        page.get_by_text("There is no queue yet.").wait_for()
        page.get_by_role("button", name="Sign out").click()
        page.get_by_role("button", name="Sign in").wait_for()
        page.reload()
        page.get_by_role("button", name="Sign in").wait_for()

    def test_theEndOfASession(self) -> None:
        """When its session has ended elsewhere, an open page asks for credentials, and goes on after that."""
        page = self.signIn("ann", "ann")
        page.get_by_text("There is no queue yet.").wait_for()
        page.context.clear_cookies()
        page.get_by_role("button", name="Sign in").wait_for()
        page.get_by_label("Name").fill("ann")
        page.get_by_label("Password").fill("ann")
        page.get_by_role("button", name="Sign in").click()
        page.get_by_text("There is no queue yet.").wait_for()

    def test_liveMessagesOfASignedInUser(self) -> None:
        """Live messages and publishing work by tickets."""
        page = self.signIn("ann", "ann")
        page.get_by_text("There is no queue yet.").wait_for()
        page.goto(f"http://127.0.0.1:{self.broker.port()}/console/#/topic/news")
        page.get_by_role("button", name="Show messages as they arrive").click()
        page.get_by_text("waiting for the next message").wait_for()
        page.get_by_text("A message to this topic").click()
        page.get_by_role("button", name="Publish").click()
        page.get_by_text("Published.").wait_for()
        page.get_by_text("1 so far").wait_for()

    def test_withoutRights(self) -> None:
        """The menu has only pages that the user may read, and changes are disabled, with the reason."""
        page = self.signIn("bob", "bob")
        page.get_by_text("There is no queue yet.").wait_for()
        self.assertEqual(page.locator("nav#nav a").all_inner_texts(), ["Queues"])
        page.goto(f"http://127.0.0.1:{self.broker.port()}/console/#/queue/mails")
        purge = page.get_by_role("button", name="Purge")
        purge.wait_for()
        self.assertTrue(purge.is_disabled())
        self.assertEqual(purge.get_attribute("title"), "needs the right admin for api/queues/purge")
        page.get_by_role("alert").get_by_text("This page cannot be shown").wait_for()


class KeyboardTests(ConsoleCase):
    """The console without a mouse."""

    def test_skipLink(self) -> None:
        """The first key leads past the menu, on the same page."""
        page = self.show("topics", until="sensors.000")
        page.reload()
        page.get_by_text("sensors.000").wait_for()
        page.evaluate("document.activeElement.blur()")
        page.locator(".skip").focus()
        page.keyboard.press("Enter")
        self.assertEqual(page.evaluate("document.activeElement.id"), "main")
        self.assertTrue(page.url.endswith("#/topics"))

    def test_aDialog(self) -> None:
        """A question opens with the keyboard, holds the focus, and Escape answers it with no."""
        page = self.show("queue", "mails", until="mailer")
        page.get_by_role("button", name="Pause").focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        dialog.wait_for()
        for _ in range(4):
            self.assertTrue(page.evaluate("document.activeElement.closest('dialog') !== null"))
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement === document.body"):
                page.keyboard.press("Tab")  # the browser's own buttons are between the last and the first
        page.keyboard.press("Escape")
        dialog.wait_for(state="detached")
        self.assertFalse(self.api("queues/detail?topic=mails")["paused"])
        self.assertIn("Pause", page.evaluate("document.activeElement.textContent"))

    def test_focusSurvivesUpdates(self) -> None:
        """A focused link of a table keeps the focus while the numbers change."""
        page = self.show("topics", until="orders.eu")
        page.locator("section").last.get_by_role("link", name="orders.eu").focus()
        before = self.rows(page, "Topics")
        self.eventually(page, lambda: self.rows(page, "Topics") != before)
        self.assertEqual(page.evaluate("document.activeElement.textContent"), "orders.eu")

    def test_theme(self) -> None:
        """The theme of the system is used until the user chooses the other one, which is remembered."""
        page = self.show("queues", until="mails", theme="dark")
        dark = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_role("button", name="Use the light theme").click()
        self.assertNotEqual(page.evaluate("getComputedStyle(document.body).backgroundColor"), dark)
        page.reload()
        page.get_by_role("button", name="Use the dark theme").wait_for()
