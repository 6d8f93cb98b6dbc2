"""Twelve hours of an open console, as many reads of the API as the page makes in them: page and broker stay flat."""

from typing import Any

from tests.console.case import ConsoleCase
from tests.nightly import nightly

#: Milliseconds between two reads of a page.
EVERY = {"queues": 2000, "overview": 5000}
HOURS, HOUR = 12, 3_600_000
#: Bytes by which the page and the broker may grow after the first hour.
PAGE, BROKER = 3 << 20, 24 << 20


@nightly
class LongUseTests(ConsoleCase):
    """The browser's clock is set forward from read to read."""

    def use(self, name: str, until: str) -> None:
        """Leave a page open for twelve hours."""
        window = self.window()
        window.page.clock.install()
        page = window.open(self.base, f"#/{name}")
        page.locator("main").get_by_text(until).first.wait_for()
        after: list[tuple[int, int]] = []
        for _ in range(HOURS):
            for _ in range(HOUR // EVERY[name]):
                with page.expect_response(lambda answer: "/api/" in answer.url):
                    page.clock.run_for(EVERY[name])
            after.append((self.heap(page), self.memory()))
        first, last = after[0], after[-1]
        self.assertLess(last[0] - first[0], PAGE, after)
        self.assertLess(last[1] - first[1], BROKER, after)

    def heap(self, page: Any) -> int:
        """Return the bytes of the page's heap that are in use."""
        inspector = page.context.new_cdp_session(page)
        inspector.send("HeapProfiler.collectGarbage")
        used: int = inspector.send("Runtime.getHeapUsage")["usedSize"]
        inspector.detach()
        return used

    def memory(self) -> int:
        """Return the bytes of the broker's resident memory."""
        with open(f"/proc/{self.broker.pid}/statm") as file:
            return int(file.read().split()[1]) * 4096

    def test_queues(self) -> None:
        """The list of queues."""
        self.use("queues", "mails")

    def test_overview(self) -> None:
        """The charts, which have the samples of one hour."""
        self.use("overview", "Running for")
