"""The whole program, short: with our broker, with peers that are installed, and with a broker that has a fault."""

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from benchmarks import pump
from benchmarks.peers.fleximq import FlexiMQ
from benchmarks.peers.nats import Nats
from benchmarks.results import Results
from benchmarks.scenes import SCENES, Scene
from benchmarks.side_by_side import main, measure
from benchmarks.work.effort import QUICK
from benchmarks.work.fan import Fan
from tests.benchmarks.forgetful import FAULTS
from tests.nightly import nightly

SCRIPT = Path(__file__).with_name("forgetful.py")
#: What the reason of a refusal has in it, for each fault.
SIGNS = {
    "lose": "did not arrive at 2 of 3",
    "double": "more",
    "answer": "an error of a kind",
    "close": "closed",
    "first": "was due",
}


class Forgetful(FlexiMQ):
    """A broker with a fault, spoken to as ours."""

    fault: ClassVar[str]

    def command(self) -> Sequence[str]:
        return [sys.executable, str(SCRIPT), str(self.port), self.fault]


def withFault(name: str) -> Results:
    """Return the results of a broker that has this fault."""
    kind = type("Faulty", (Forgetful,), {"fault": name})
    return measure(Scene("s", "A scene", Fan(100, subscribers=2), (kind,)), QUICK, 1)


class FaultTests(SynchronousTestCase):
    """Whatever goes wrong with a single message of thousands, there is no number."""

    def setUp(self) -> None:
        """No long waits."""
        self.patch(pump, "SILENCE", 0.3)

    def test_none(self) -> None:
        """Without a fault there is one, so that it is the fault that takes it."""
        results = withFault("none")
        self.assertEqual(results.refused, {})
        self.assertEqual(len(results.values("fleximq", "deliveries/s")), 1)

    def test_faults(self) -> None:
        """Lost, doubled, answered by an error, disconnected, altered."""
        for name, words in SIGNS.items():
            results = withFault(name)
            self.assertIn(words, results.refused["fleximq"], name)
            self.assertEqual(list(results.rows()), [], name)

    def test_allFaultsTried(self) -> None:
        """No fault that the broker can have is left out above."""
        self.assertEqual(set(FAULTS), {"none", *SIGNS})


@nightly
class QuickTests(SynchronousTestCase):
    """``--quick`` against real brokers."""

    def run_(self, *arguments: str) -> tuple[int, str]:
        """Return the exit code and what is printed."""
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(io.StringIO()):
            code = main(arguments)
        return code, printed.getvalue()

    def test_ours(self) -> None:
        """1 to 1 over our broker gives a number, on the screen and in the files."""
        json_, rst = Path(self.mktemp()), Path(self.mktemp())
        code, printed = self.run_(
            "--quick", "--scenes", "1-1-100b", "--brokers", "fleximq", "--json", str(json_), "--rst", str(rst)
        )
        self.assertEqual(code, 0, printed)
        self.assertRegex(printed, r"1 to 1, 100 B +deliveries/s +fleximq +[0-9,]+ ")
        (scene,) = json.loads(json_.read_text())["scenes"]
        self.assertEqual(scene["refused"], {})
        self.assertGreater(scene["rows"][0]["median"], 0)
        self.assertIn("1 to 1, 100 B", rst.read_text())

    def test_everyWork(self) -> None:
        """So does every other kind of work."""
        json_ = Path(self.mktemp())
        names = "mixed,ws-1-10,reqrep,latency,joining,idle,blipmq-qos1,minimq,crowd,slow-blipmq-drop"
        self.run_("--quick", "--scenes", names, "--brokers", "fleximq", "--json", str(json_))
        for scene in json.loads(json_.read_text())["scenes"]:
            self.assertEqual(scene["refused"], {}, scene["scene"])
            for row in scene["rows"]:
                self.assertGreaterEqual(row["median"], 0, row)

    def test_withPeer(self) -> None:
        """Beside nats-server there is a ratio."""
        if Nats.missing():
            raise SkipTest(f"not installed: {Nats.missing()}")
        json_ = Path(self.mktemp())
        self.run_("--quick", "--scenes", "1-1-100b", "--brokers", "fleximq,nats", "--json", str(json_))
        (scene,) = json.loads(json_.read_text())["scenes"]
        self.assertEqual(scene["refused"], {})
        self.assertGreater(scene["rows"][1]["ratio"], 0)

    def test_list(self) -> None:
        """``--list`` names every scene and measures nothing."""
        code, printed = self.run_("--list")
        self.assertEqual(code, 0)
        for scene in SCENES:
            self.assertIn(f"{scene.name} ", printed)

    def test_pattern(self) -> None:
        """A pattern stands for all scenes that match, and scenes may be asked for that are left out otherwise."""
        self.patch(sys.modules[main.__module__], "measure", lambda scene, *_: Results(scene))
        for wanted, expected in [("ws-*", {"ws-1-1", "ws-1-10", "ws-1-100"}), ("crowd,idle", {"crowd", "idle"})]:
            json_ = Path(self.mktemp())
            self.run_("--scenes", wanted, "--brokers", "fleximq", "--json", str(json_))
            self.assertEqual({scene["scene"] for scene in json.loads(json_.read_text())["scenes"]}, expected)

    def test_unknownScene(self) -> None:
        """A scene that does not exist is refused."""
        self.assertEqual(self.assertRaises(SystemExit, self.run_, "--scenes", "1-1-1g").code, 2)

    def test_ourFault(self) -> None:
        """A message of ours lost makes the exit code 1."""
        self.patch(pump, "SILENCE", 0.3)
        kind = type("Faulty", (Forgetful,), {"fault": "lose"})
        self.patch(sys.modules[main.__module__], "SCENES", (Scene("s", "A scene", Fan(100), (kind,)),))
        code, printed = self.run_("--quick")
        self.assertEqual(code, 1)
        self.assertIn("Refused, so without numbers: A scene, fleximq", printed)


class ScenesTests(SynchronousTestCase):
    """The table of scenes."""

    def test_names(self) -> None:
        """Every scene has a name of its own."""
        self.assertEqual(len({scene.name for scene in SCENES}), len(SCENES))

    def test_oursFirst(self) -> None:
        """Our broker takes part in every scene, as the first."""
        self.assertEqual({scene.peers[0].broker for scene in SCENES}, {"fleximq"})
