"""The fuzzing client of the Autobahn test suite, against WebSockets of ours.

It needs Python 2.7. The variable ``WSTEST`` holds the command that starts it; without that, ``wstest`` is looked for in
the path. docs/reference/dialects.rst tells what it found.
"""

import json
import os
import shlex
import shutil
import subprocess
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.nightly import nightly

HERE = Path(__file__).parent
SOURCE = HERE.parents[1]
DIALECTS = ("echo_text", "echo_binary")
#: What a case may end with. NON-STRICT are those that want bad UTF-8 to be noticed before its message has ended.
GOOD = {"OK", "NON-STRICT", "INFORMATIONAL"}
#: Seconds for all cases of one test.
PATIENCE = 900


def wstest() -> list[str]:
    """Return the words that start the suite, or skip."""
    words = shlex.split(os.environ.get("WSTEST", "")) or ["wstest"]
    if shutil.which(words[0]) is None:
        raise SkipTest("there is no wstest, which needs Python 2.7: pip install autobahntestsuite, and see WSTEST")
    return words


@nightly
class SuiteTests(SynchronousTestCase):
    """A broker that echoes, and what the suite asks of it."""

    #: All cases but those with compression: their kinds, and how many of each there are.
    plain: ClassVar[dict[str, int]] = {
        "1": 16,
        "2": 11,
        "3": 7,
        "4": 10,
        "5": 20,
        "6": 145,
        "7": 37,
        "9": 54,
        "10": 1,
    }
    #: Those with compression that send 1,000 messages of up to 8 KiB; larger ones take the suite much longer.
    compressed: ClassVar[list[str]] = [
        *(f"12.{n}.{size}" for n in range(1, 6) for size in range(1, 7)),
        *(f"13.{n}.{size}" for n in range(1, 8) for size in range(1, 7)),
    ]

    def results(self, dialects: Sequence[str], cases: Sequence[str]) -> dict[str, dict[str, tuple[str, str]]]:
        """Return how cases ended: the conversation, and the connection."""
        words = wstest()
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        path = os.pathsep.join([str(SOURCE), str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        listens = [word for each in dialects for word in ("--listen", f"{each}+tcp:0:interface=127.0.0.1")]
        with BrokerProcess(*listens, environment={"PYTHONPATH": path}) as broker:
            servers = [
                {"agent": each, "url": f"ws://127.0.0.1:{broker.port(n)}", "protocols": [each]}
                for n, each in enumerate(dialects)
            ]
            spec: dict[str, object] = {"outdir": str(folder), "servers": servers, "cases": list(cases)}
            spec |= {"exclude-cases": [], "exclude-agent-cases": {}}
            (folder / "spec.json").write_text(json.dumps(spec))
            command = [*words, "-m", "fuzzingclient", "-s", str(folder / "spec.json")]
            ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=PATIENCE)
            self.assertEqual(ended.returncode, 0, ended.stdout[-2000:] + ended.stderr[-2000:])
            self.assertNotIn("Traceback", broker.output)
        found = json.loads((folder / "index.json").read_text())
        return {
            dialect: {case: (each["behavior"], each["behaviorClose"]) for case, each in of.items()}
            for dialect, of in found.items()
        }

    def assertGood(self, results: dict[str, tuple[str, str]]) -> None:
        """Check that no case failed, and no connection ended in another way than the document has it."""
        self.assertEqual({case: how for case, how in results.items() if not set(how) <= GOOD}, {})

    def test_plain(self) -> None:
        """Frames, fragments, PINGs, reserved bits, UTF-8, closing and sizes, with either kind taken quickly."""
        found = self.results(DIALECTS, [f"{kind}.*" for kind in self.plain])
        self.assertEqual(set(found), set(DIALECTS))
        for results in found.values():
            self.assertGood(results)
            self.assertEqual(dict(Counter(case.partition(".")[0] for case in results)), self.plain)

    def test_compressed(self) -> None:
        """permessage-deflate, with all that may be negotiated."""
        found = self.results(DIALECTS[:1], self.compressed)
        self.assertEqual(set(found[DIALECTS[0]]), set(self.compressed))
        self.assertGood(found[DIALECTS[0]])
