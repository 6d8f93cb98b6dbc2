"""Chromium, driven by Playwright, for the tests of the console's pages.

Without either of them :data:`MISSING` says so, and the tests are skipped. Playwright's objects belong to one thread, in
which an event loop seems to run until the end: the tests have one for themselves.
"""

import atexit
import functools
import importlib.util
import shutil
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

from twisted.trial.unittest import SynchronousTestCase

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
#: Why there is no browser, or None.
MISSING = (
    "there is no Chromium here" if CHROMIUM is None
    else "Playwright is not installed" if importlib.util.find_spec("playwright") is None
    else None
)  # fmt: skip
OPTIONS = (
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage",
)  # fmt: skip
#: Milliseconds that the browser may need until something is shown; they cost nothing while it is there.
PATIENCE = 60_000
#: The sizes of the window: of a desk, and of a telephone.
DESK, PHONE = {"width": 1200, "height": 800}, {"width": 400, "height": 800}


T = TypeVar("T")


class Browser:
    """One Chromium without a window, and the thread that drives it."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def call(self, function: Callable[[], T]) -> T:
        """Call a function in the thread of the browser."""
        if threading.current_thread() is self._thread:
            return function()
        future: Future[T] = Future()

        def run() -> None:
            try:
                future.set_result(function())
            except BaseException as error:
                future.set_exception(error)

        self._calls.put(run)
        return future.result()

    def close(self) -> None:
        """End the browser."""
        self._calls.put(None)
        self._thread.join()

    def _serve(self) -> None:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            self._chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=[*OPTIONS])
            while (run := self._calls.get()) is not None:
                run()
            self._chromium.close()

    def window(self, theme: str = "light", size: Mapping[str, int] = DESK, **more: Any) -> "Window":
        """Open a window with a profile of its own."""
        return Window(self._chromium.new_context(viewport=dict(size), color_scheme=theme, **more))


@functools.cache
def theBrowser() -> Browser:
    """Return the browser of all tests, which ends with the process."""
    browser = Browser()
    atexit.register(browser.close)
    return browser


class Window:
    """A page of the browser. ``problems``: errors of scripts, refused contents, and requests to other origins."""

    def __init__(self, context: Any) -> None:
        context.set_default_timeout(PATIENCE)
        self._context = context
        self.page = context.new_page()
        self.problems: list[str] = []
        self._base = ""
        self.page.on("pageerror", lambda error: self.problems.append(f"error: {error}"))
        self.page.on("console", self._said)
        self.page.on("dialog", self._dialog)
        self.page.on("request", self._requested)

    def _said(self, message: Any) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.problems.append(f"console: {message.text}")

    def _dialog(self, dialog: Any) -> None:
        self.problems.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _requested(self, request: Any) -> None:
        if not request.url.startswith((self._base, "data:")):
            self.problems.append(f"foreign request: {request.url}")

    def open(self, base: str, address: str = "") -> Any:
        """Open an address of the console of a broker, e.g. ``#/queues``, and return Playwright's page.

        :param base: the origin, e.g. ``http://127.0.0.1:7890``.
        """
        self._base = base
        self.page.goto(f"{base}/console/{address}")
        return self.page

    def close(self) -> None:
        """Close the window."""
        self._context.close()


def _inItsThread(test: Callable[[Any], None]) -> Callable[[Any], None]:
    @functools.wraps(test)
    def run(case: Any) -> None:
        theBrowser().call(lambda: test(case))

    return run


class BrowserCase(SynchronousTestCase):
    """The tests run in the thread of the browser. Each window must end without problems."""

    if MISSING:
        skip = MISSING

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for name, test in [*vars(cls).items()]:
            if name.startswith("test"):
                setattr(cls, name, _inItsThread(test))

    def window(self, theme: str = "light", size: Mapping[str, int] = DESK, **more: Any) -> Window:
        """Open a window that is closed at the end of the test, which fails if it had problems."""
        window = theBrowser().window(theme, size, **more)
        self.addCleanup(lambda: self.assertEqual(window.problems, []))
        self.addCleanup(lambda: theBrowser().call(window.close))
        return window
