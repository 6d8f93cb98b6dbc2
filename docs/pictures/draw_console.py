"""Draws the pictures of docs/guides/console.rst: each page of the console in both themes, with a busy broker.

``python docs/pictures/draw_console.py`` writes console/PAGE-THEME.webp beside this file. It needs Chromium, Playwright
and Pillow.
"""

import sys
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

PICTURES = Path(__file__).parent
sys.path.insert(0, str(PICTURES.parents[1]))

from tests.console.browser import CHROMIUM, OPTIONS  # noqa: E402
from tests.console.scene import Scene, address, busyBroker  # noqa: E402

#: The names of the pictures, and the segments of the pages' addresses; READER is the id of a client.
SHOWN = (
    ("queues", ("queues",)), ("queue", ("queue", "mails")), ("schedules", ("schedules",)),
    ("dead-letters", ("letters", "mails")), ("overview", ("overview",)), ("topics", ("topics",)),
    ("topic", ("topic", "orders.eu")), ("clients", ("clients",)), ("client", ("client", "READER")),
    ("trace", ("trace", "client", "READER")), ("rights", ("rights",)), ("settings", ("settings",)),
    ("journal", ("journal",)), ("groups", ("groups",)), ("cluster", ("cluster",)), ("warnings", ("warnings",)),
)  # fmt: skip
SIZE = {"width": 1100, "height": 620}


def draw() -> None:
    """Write all pictures."""
    folder = PICTURES / "console"
    folder.mkdir(exist_ok=True)
    with busyBroker() as broker, Scene(broker.port()) as scene, sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=[*OPTIONS])
        for theme in ("light", "dark"):
            page = chromium.new_context(viewport=SIZE, color_scheme=theme).new_page()
            page.goto(f"http://127.0.0.1:{broker.port()}/console/")
            page.wait_for_timeout(20_000)  # the charts have some samples then
            for name, segments in SHOWN:
                shown = [str(scene.reader.id) if each == "READER" else each for each in segments]
                page.goto(f"http://127.0.0.1:{broker.port()}/console/{address(*shown)}")
                page.wait_for_timeout(2500)
                prepare(page, name)
                picture = Image.open(BytesIO(page.screenshot()))
                picture.convert("RGB").save(folder / f"{name}-{theme}.webp", quality=55, method=6)
        chromium.close()


def prepare(page, name) -> None:
    """Bring a page into the state that its picture shows."""
    if name == "dead-letters":
        page.locator(".rows summary").first.click()
    elif name == "topic":
        page.get_by_role("button", name="Show messages as they arrive").click()
    elif name == "trace":
        page.get_by_role("button", name="Start").click()
    elif name == "rights":
        page.get_by_label("May").fill("alice")
        page.get_by_label("with").fill("orders.eu")
        page.get_by_role("button", name="Ask").click()
    page.wait_for_timeout(1500)


if __name__ == "__main__":
    draw()
