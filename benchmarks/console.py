"""How long the console's pages take until something is painted, and until they show what they read from the broker.

::

    python -m benchmarks.console

It needs Chromium and Playwright. Each page is opened 15 times in a new profile, whose cache is empty, on a broker of
the same machine that is publishing; the medians and the smallest values count. The broker's page of text at ``/``
shows what browser and machine need for any page.
"""

import statistics
from functools import partial
from typing import Any

from benchmarks.machine import machine
from tests.console.browser import MISSING, theBrowser
from tests.console.scene import Scene, address, busyBroker

_RUNS = 15
#: Pages, and a text that each shows when it has read what it shows.
_PAGES = {"queues": "mails", "overview": "Running for", "topics": "sensors.000"}
_PAINTED = "() => performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
_SHOWN = "text => document.querySelector('main')?.innerText.includes(text) && performance.now()"


def _open(base: str, name: str) -> tuple[float, ...]:
    """Return the milliseconds until the first paint, and until the page is complete."""
    window = theBrowser().window()
    page: Any = window.open(base, address(name))
    shown = page.wait_for_function(_SHOWN, arg=_PAGES[name]).json_value()
    painted = page.wait_for_function(_PAINTED).json_value()
    window.close()
    return painted, shown


def _openText(base: str) -> tuple[float, ...]:
    """Return the milliseconds until the first paint of a page without scripts."""
    window = theBrowser().window()
    window.page.goto(f"{base}/")
    painted = window.page.wait_for_function(_PAINTED).json_value()
    window.close()
    return (painted,)


def main() -> None:
    """Measure, and print a table."""
    if MISSING:
        raise SystemExit(MISSING)
    print(*machine().values(), sep=", ")
    with busyBroker() as broker, Scene(broker.port()):
        base = f"http://127.0.0.1:{broker.port()}"
        for name in ("/", *_PAGES):
            opened = partial(_openText, base) if name == "/" else partial(_open, base, name)
            found = [theBrowser().call(opened) for _ in range(_RUNS)]
            for words, times in zip(("first paint", "complete"), zip(*found, strict=True), strict=False):
                print(f"{name:9} {words:12} {statistics.median(times):5.0f} ms, at least {min(times):5.0f} ms")


if __name__ == "__main__":
    main()
