"""The EventSource of a real browser reads a durable topic over cut connections and kills of the broker.

There are 5 cuts, in the nightly run 200.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import PATIENCE, BrokerProcess
from tests.conversations.clients import FlexiClient, Stream
from tests.conversations.cutting_proxy import CuttingProxy
from tests.nightly import repetitions

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
    "--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage",
)  # fmt: skip
#: Bytes of an answer until it is cut, at least and at most; its head has fewer.
_SIZES = 400, 6000
#: Seconds for the browser, which needs 10 for 200 cuts.
_SECONDS = 120.0
#: The page reports when the value "end" arrives.
PAGE = b"""<!doctype html><title>reader</title><script>
const found = {values: [], ids: [], gaps: [], opened: 0};
const source = new EventSource("/topics/d.x?retry=0.02");
source.onopen = () => { found.opened += 1; };
source.addEventListener("gap", event => found.gaps.push(event.data));
source.onmessage = event => {
    const {value, offset} = JSON.parse(event.data);
    found.values.push(value);
    found.ids.push(Number(event.lastEventId) - offset);
    if (value === "end") {
        source.close();
        fetch("/report", {method: "POST", body: JSON.stringify(found)});
    }
};
</script>"""


class EventSourceTests(SynchronousTestCase):
    """Chromium, a proxy that cuts, and a broker with a journal."""

    if CHROMIUM is None:
        skip = "there is no Chromium here"

    def test_noMessageIsMissedOrRepeated(self) -> None:
        """Values arrive once and in order, without a gap, over any number of connections and kills of the broker."""
        cuts, kills = repetitions(5, 200), repetitions(1, 5)
        # After the head: browsers take one that is cut as a whole one, and give up if no type is in it.
        proxy = CuttingProxy(PAGE, cuts, lambda: random.randint(*_SIZES))
        self.addCleanup(proxy.close)
        options = ("--journal", os.path.abspath(self.mktemp()), "--durable", "d.*")
        folder = tempfile.mkdtemp(prefix="fleximq-chromium-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        assert CHROMIUM is not None
        chromium = subprocess.Popen(
            [CHROMIUM, *_OPTIONS, f"--user-data-dir={folder}", f"http://127.0.0.1:{proxy.port}/page"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "HOME": folder},
        )
        try:
            published = 0
            for number in range(kills + 1):
                with BrokerProcess(*options) as broker:
                    proxy.broker = broker.address
                    published = self._publish(proxy, published, cuts * (number + 1) // (kills + 1))
                    if number < kills:
                        broker.stop(signal.SIGKILL)
                    else:
                        self._say(proxy, "end")
                        self.assertTrue(proxy.reported.wait(_SECONDS), f"{proxy.opened} opened, {proxy.cuts} cut")
        finally:
            chromium.kill()
            chromium.wait(PATIENCE)
        found = json.loads(proxy.report)
        self.assertEqual(found["gaps"], [])
        first = found["values"][0]  # the page may have come late
        self.assertEqual(found["values"], [*range(first, published), "end"])
        self.assertEqual({*found["ids"]}, {0})
        self.assertEqual(proxy.cuts, cuts)
        self.assertGreater(proxy.opened, cuts)

    def _publish(self, proxy: CuttingProxy, number: int, cuts: int) -> int:
        """Publish numbers from this one on until so many cuts are made; return the next one."""
        deadline = time.monotonic() + _SECONDS
        with FlexiClient(Stream(proxy.broker)) as client:
            client.join()
            while proxy.cuts < cuts and time.monotonic() < deadline:
                if proxy.opened:
                    for _ in range(10):
                        client.publish("d.x", number)
                        number += 1
                    client.barrier()
                threading.Event().wait(0.002)
        return number

    def _say(self, proxy: CuttingProxy, value: str) -> None:
        with FlexiClient(Stream(proxy.broker)) as client:
            client.join()
            client.publish("d.x", value)
            client.barrier()
