"""The EventSource of a real browser reads a durable topic over cut connections: 5 cuts, in the nightly run 200."""

import json
import os
import random
import shutil
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
        """Values arrive once and in order, without a gap, over any number of connections."""
        cuts = repetitions(5, 200)
        with BrokerProcess("--journal", "journal", "--durable", "d.*") as broker:
            # After the head: browsers take one that is cut as a whole one, and give up if no type is in it.
            proxy = CuttingProxy(broker.address, PAGE, cuts, lambda: random.randint(*_SIZES))
            self.addCleanup(proxy.close)
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
                published = self._publish(broker.address, proxy)
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
        self.assertEqual(proxy.opened, cuts + 1)

    def _publish(self, address: tuple[str, int], proxy: CuttingProxy) -> int:
        """Publish numbers until all cuts are made, then "end"; return how many."""
        number, deadline = 0, time.monotonic() + _SECONDS
        with FlexiClient(Stream(address)) as client:
            client.join()
            while proxy.cuts < proxy.most and time.monotonic() < deadline:
                if proxy.opened:
                    for _ in range(10):
                        client.publish("d.x", number)
                        number += 1
                    client.barrier()
                threading.Event().wait(0.002)
            client.publish("d.x", "end")
            client.barrier()
        return number
