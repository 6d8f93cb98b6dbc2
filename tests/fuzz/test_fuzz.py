"""A few seconds of hostile frames, a minute where CI is set."""

import importlib.util
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.fuzz.hostile import STEP, Batch, changed, hostile
from tests.fuzz.readers import SLOW, Readers, corpus
from tests.fuzz.run import PREFIX, Play, chance, run
from tests.fuzz.tongues import BLIP, FLEXI, MINI, SCANNED, SPOKEN, Tongue
from tests.fuzz.world import Broken, World
from tests.nightly import repetitions
from tests.processor_time import UNIT, calibrate
from tests.wire.flexi_frames import cut

ROOT = Path(__file__).parents[2]
#: The number of the reader of patterns.
PATTERN = 12
SECONDS = float(repetitions(2, 60))
#: Seeds as they are: a deed of 240 and above changes nothing.
UNCHANGED = b"".join(STEP.pack(seed, 255, 0, 0) for seed in range(256))


class FuzzTests(SynchronousTestCase):
    """Whatever is said, nothing is raised, nothing hangs and nothing grows."""

    def setUp(self) -> None:
        """Start a broker in memory."""
        self.world = World()
        self.addCleanup(self.world.close)
        self.play = Play(self.world)

    def test_chance(self) -> None:
        """By chance, for some seconds."""
        report = run(SECONDS, chance(random.Random()), self.play)
        self.assertGreater(report.spoken, 0)
        self.assertGreater(report.scanned, 0)
        print(f"\n{report}")

    def test_hypothesis(self) -> None:
        """By hypothesis, which makes the recipe small that breaks something."""

        @given(st.binary(min_size=PREFIX + STEP.size, max_size=600))
        def play(recipe: bytes) -> None:
            self.play.recipe(recipe)

        play()
        self.world.quiet()

    def test_restricted(self) -> None:
        """So it is where credentials are checked and permissions restrict what may be done."""
        keys = self.world.folder / "keys"
        keys.write_text("")
        world = World(
            **{
                "auth": [f"apikeys:{keys}"],
                "allow-anonymous": True,
                "roles": {"everyone": {"publish": ["a"], "subscribe": ["b/#"], "read": ["broker/about"]}},
                "max-message-rate": "100,1000",
                "over-rate": "refuse",
            }
        )
        self.addCleanup(world.close)
        report = run(SECONDS / 2, chance(random.Random()), Play(world))
        self.assertGreater(report.spoken, 0)

    def test_seeds(self) -> None:
        """What the mutations begin with is understood: nothing of it ends a connection."""
        for tongue in dict.fromkeys(SPOKEN):
            if not tongue.once:
                for batch in hostile(tongue, UNCHANGED):
                    self.assertFalse(batch.last)
                    self.world.say(tongue, batch)
                    self.assertIn((tongue.name, 0), self.world.lines)

    def test_broken(self) -> None:
        """What is logged as a failure is noticed."""
        self.world.say(MINI, Batch(b"PING:\n", 1, False))

        def fail(*ignored: object) -> None:
            raise ValueError("as if it were a bug")

        self.patch(self.world.broker, "acknowledgeMessages", fail)
        error = self.assertRaises(Broken, self.world.say, MINI, Batch(b"ACK:x\n", 1, False))
        self.assertIn("as if it were a bug", str(error))
        self.world.forgive()
        self.flushLoggedErrors(ValueError)


class ReadersTests(SynchronousTestCase):
    """Single inputs for every reader."""

    def test_corpus(self) -> None:
        """The inputs that are kept break nothing, and each reader has one."""
        readers = Readers()
        self.addCleanup(readers.close)
        for name, data in corpus():
            try:
                readers.read(data)
            except Broken as error:
                self.fail(f"{name}: {error}")
        self.assertEqual({name.partition(".")[0].replace("-", " ") for name, _ in corpus()}, set(readers.all))

    def test_slow(self) -> None:
        """A reader that takes too long is noticed, and so is an exception."""
        readers = Readers()
        self.addCleanup(readers.close)

        def work(data: bytes) -> None:
            for _ in range(int(2 * SLOW / UNIT)):
                calibrate()

        readers.all["pattern"] = work
        self.assertIn("of the processor", str(self.assertRaises(Broken, readers.read, bytes([PATTERN]))))
        readers.all["pattern"] = lambda data: {}["no"]  # type: ignore[index]
        self.assertIn("KeyError", str(self.assertRaises(Broken, readers.read, bytes([PATTERN]))))

    def test_guided(self) -> None:
        """Atheris makes more of them: some seconds, or ten million."""
        if importlib.util.find_spec("atheris") is None:
            raise SkipTest("atheris is not installed")
        seconds, inputs = str(repetitions(2, 7200)), str(repetitions(1_000_000, 10_000_000))
        command = [sys.executable, "-m", "tests.fuzz.guided", "readers", seconds, "1", inputs]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=8000)
        self.assertEqual(done.returncode, 0, done.stderr[-2000:])
        print(f"\n{done.stdout}")


class HostileTests(SynchronousTestCase):
    """Recipes."""

    def batches(self, tongue: Tongue, recipe: bytes) -> Iterator[Batch]:
        """Return what a recipe says."""
        return hostile(tongue, recipe)

    def test_same(self) -> None:
        """The same recipe is the same frames again."""
        recipe = random.Random(1).randbytes(600)
        for tongue in dict.fromkeys((*SPOKEN, *SCANNED)):
            self.assertEqual(list(self.batches(tongue, recipe)), list(self.batches(tongue, recipe)))

    def test_framed(self) -> None:
        """Most changes leave the frames around them whole."""
        recipe = b"".join(STEP.pack(seed, 100 + seed % 100, seed * 7, seed * 31) for seed in range(200))
        [batch] = self.batches(FLEXI, recipe)
        self.assertEqual(batch.frames, 200)
        data, count = batch.data, 0
        while data:
            size = 34 + int.from_bytes(data[22:26], "big")
            size += int.from_bytes(data[size - 8 : size], "big")
            data, count = data[size:], count + 1
        self.assertEqual(count, 200)

    def test_unchanged(self) -> None:
        """Some are as they were."""
        [batch] = self.batches(FLEXI, STEP.pack(0, 255, 0, 0))
        [heard] = cut(batch.data)
        self.assertEqual((heard.kind, heard.header), ("PUB", {"topic": "a"}))

    def test_lastIsBroken(self) -> None:
        """A frame whose framing is broken is the last of its batch."""
        batches = list(self.batches(BLIP, STEP.pack(0, 255, 0, 0) + STEP.pack(0, 0, 3, 0) + STEP.pack(0, 255, 0, 0)))
        self.assertEqual([(batch.frames, batch.last) for batch in batches], [(2, True), (1, False)])

    def test_anything(self) -> None:
        """Any two numbers change something, or nothing, and raise nothing."""
        for value in range(0, 65536, 97):
            for place in (0, 1, 5, 65535):
                self.assertIsInstance(changed(b"hello", value, place), bytes)
                self.assertIsInstance(changed(b"", value, place), bytes)
