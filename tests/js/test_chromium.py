"""The JavaScript client, as the broker serves it, in Chromium."""

from twisted.trial.unittest import SynchronousTestCase

from tests.client.bad_network import BadNetwork
from tests.client.cases import Place
from tests.js.chromium import Browser
from tests.js.workshop import HERE, ROOT
from tests.nightly import repetitions

_broker = Place(lambda: ("--journal", "journal", "--durable", "#"))
_CLIENT = (ROOT / "fleximq" / "web" / "static" / "fleximq.js").read_bytes()

_PAGE = """<!DOCTYPE html>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'self'; connect-src 'self' ws:;">
<script type="module" src="/main.js"></script>
"""

_CUTS = """
import { connect } from "/fleximq.js";
import { survive } from "/cutting.mjs";
const tell = (result) => fetch("/result", { method: "POST", body: JSON.stringify(result) });
try {
  const cut = () => fetch("/cut", { method: "POST", body: "" });
  tell(await survive({ connect, url: "URL", cut, times: TIMES, topic: "cut.chromium" }));
} catch (error) {
  tell({ error: `${error} ${error.stack}` });
}
"""

_WORKER = """
import { connect } from "/fleximq.js";
try {
  const mq = await connect("URL");
  const subscription = await mq.subscribe("worker.*");
  await mq.publishMany("worker.a", [1, "two", new Uint8Array([3]), { four: 4n }]);
  const got = [];
  for await (const message of subscription) if (got.push(message.value) === 4) break;
  await mq.close();
  postMessage([got[0], got[1], [...got[2]], got[3].four]);
} catch (error) {
  postMessage(`${error} ${error.stack}`);
}
"""

_USES_WORKER = """
const worker = new Worker("/worker.js", { type: "module" });
worker.onmessage = ({ data }) => fetch("/result", { method: "POST", body: JSON.stringify(data) });
"""


class ChromiumTests(SynchronousTestCase):
    """Pages under a content security policy."""

    def setUp(self) -> None:
        """Have a network that can be cut."""
        self.network = BadNetwork(_broker.broker.address).__enter__()
        self.addCleanup(self.network.__exit__, None, None, None)
        self.url = f"ws://127.0.0.1:{self.network.port}/ws"

    def test_nothingIsLostOrRepeatedOverCutConnections(self) -> None:
        """On a durable topic, which a page publishes to and reads."""
        times = repetitions(10, 1000)
        files = {
            "/": _PAGE.encode(),
            "/main.js": _CUTS.replace("URL", self.url).replace("TIMES", str(times)).encode(),
            "/fleximq.js": _CLIENT,
            "/cutting.mjs": (HERE / "suites" / "cutting.mjs").read_bytes(),
        }
        with Browser(files, {"/cut": self.network.cut}) as browser:
            found = browser.result("/")
        self.assertNotIn("error", found)
        self.assertGreaterEqual(found["away"], times)
        self.assertGreater(found["published"], times)
        self.assertEqual((found["lost"], found["twice"], found["disordered"]), (0, 0, 0))

    def test_worksInAWorker(self) -> None:
        """Which has no document."""
        files = {
            "/": _PAGE.encode(),
            "/main.js": _USES_WORKER.encode(),
            "/worker.js": _WORKER.replace("URL", self.url).encode(),
            "/fleximq.js": _CLIENT,
        }
        with Browser(files) as browser:
            self.assertEqual(browser.result("/"), [1, "two", [3], 4])
