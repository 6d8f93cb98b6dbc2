"""What the tests of the console's pages share: a busy broker, all pages, and their tables as rows."""

import atexit
import functools
import json
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any
from urllib.request import urlopen

from tests.broker_process import BrokerProcess
from tests.console.browser import BrowserCase
from tests.console.scene import HOSTILE, Scene, address, busyBroker

#: The segments of each page's address, and a text that it shows when it is complete. CLIENT is the id of a client.
PAGES = (
    (("queues",), "mails"), (("queue", "mails"), "mailer"), (("queue", HOSTILE), HOSTILE),
    (("schedules",), "nightly <i>report</i>"), (("letters",), "mails"), (("letters", "mails"), "full <b>now</b>"),
    (("overview",), "Running for"), (("topics",), "sensors.000"), (("topic", "orders.eu"), "Stored messages"),
    (("topic", HOSTILE), HOSTILE), (("clients",), HOSTILE), (("client", "CLIENT"), "orders.#"),
    (("trace",), "Traces of the last minutes"), (("rights",), "Rights"), (("settings",), "journal"),
    (("journal",), "writable"), (("groups",), "fleximq-pipeline"), (("cluster",), "--cluster"),
    (("warnings",), "Warnings"),
)  # fmt: skip
#: Returns the rows of the table with a caption, each as its cells by the titles of their columns.
_TABLE = """caption => {
    const found = [...document.querySelectorAll("main table")].find(each => each.caption?.textContent === caption);
    const heads = [...found?.tHead.rows[0].cells ?? []].map(each => each.textContent);
    return [...found?.tBodies[0].rows ?? []].map(row =>
        Object.fromEntries([...row.cells].map((cell, at) => [heads[at], cell.textContent])));
}"""


@functools.cache
def theScene() -> tuple[BrokerProcess, Scene]:
    """Return a busy broker for all tests that change nothing, which ends with the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    broker = stack.enter_context(busyBroker())
    return broker, stack.enter_context(Scene(broker.port()))


class ConsoleCase(BrowserCase):
    """A busy broker, whose pages are shown in the browser."""

    broker: BrokerProcess
    scene: Scene

    def setUp(self) -> None:
        """Have them."""
        super().setUp()
        self.broker, self.scene = theScene()

    @property
    def base(self) -> str:
        """The broker's origin."""
        return f"http://127.0.0.1:{self.broker.port()}"

    def api(self, path: str) -> Any:
        """Return the answer of the API to a GET."""
        with urlopen(f"{self.base}/api/{path}", timeout=60) as answer:
            return json.load(answer)

    def show(self, *segments: str, until: str = "", **how: Any) -> Any:
        """Open a page in a new window, and wait until it shows a text."""
        shown = [str(self.scene.reader.id) if each == "CLIENT" else each for each in segments]
        page = self.window(**how).open(self.base, address(*shown))
        if until:
            page.locator("main").get_by_text(until).locator("visible=true").first.wait_for()
        return page

    def rows(self, page: Any, caption: str) -> list[dict[str, str]]:
        """Return the rows of the table with this caption."""
        found: list[dict[str, str]] = page.evaluate(_TABLE, caption)
        return found

    def eventually(self, page: Any, holds: Callable[[], object]) -> None:
        """Wait until something holds while the page goes on; fail with what it is after a minute."""
        for _ in range(600):
            if holds():
                return
            page.wait_for_timeout(100)
        self.fail(page.locator("main").inner_text())
