"""How the lines about durable topics are read."""

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.journal_options import MAX_AGE, MAX_INTERVAL, checkPattern, fsyncOf, retentionOf, timeToLiveOf
from fleximq.errors import SettingError


class JournalOptionsTests(SynchronousTestCase):
    """What is written, and what it means."""

    def test_ageSizeOrBoth(self) -> None:
        """Age, size, or both; the pattern may hold the sign itself."""
        read = {
            "orders.#=7d,10GiB": ("orders.#", 7 * 86400, 10 << 30),
            "a=45s": ("a", 45, 0),
            "a=2m": ("a", 120, 0),
            "a=3h": ("a", 10800, 0),
            "a=1w": ("a", 604800, 0),
            "a=64KiB": ("a", 0, 65536),
            "a=100": ("a", 0, 100),
            "a=b=1s": ("a=b", 1, 0),
            "#=1d,1": ("#", 86400, 1),
        }
        self.assertEqual({line: retentionOf(line) for line in read}, read)

    def test_noRetention(self) -> None:
        """Everything else is refused in one sentence."""
        for line in ("", "a", "a=", "a=0s", "a=0", "a=7d,", "a=7y", "a=1MiB,7d", "a=7d,1,2", "a=-1d", "a=999999999w"):
            error = self.assertRaises(SettingError, retentionOf, line)
            words = (
                "PATTERN=AGE[,SIZE] or PATTERN=SIZE, e.g. orders.#=7d,10GiB, with an age in s, m, h, d or w, over 0 "
                "and up to 100 years, and a size over 0 in B, KiB, MiB or GiB"
            )
            self.assertEqual(str(error), f"retention is {line!r}, but must be {words}")
        self.assertRaises(SettingError, retentionOf, "=7d")

    def test_hundredYearsAreLongestAge(self) -> None:
        """A hundred years are the longest age."""
        self.assertEqual(retentionOf(f"a={MAX_AGE}s").age, MAX_AGE)
        self.assertRaises(SettingError, retentionOf, f"a={MAX_AGE + 1}s")

    def test_timeToLive(self) -> None:
        """A pattern and seconds."""
        self.assertEqual(timeToLiveOf("prices.#=60"), ("prices.#", 60.0))
        self.assertEqual(timeToLiveOf("a=b=0.5"), ("a=b", 0.5))
        for line in ("", "a", "a=", "a=0", "a=-1", "a=1h", "a=nan", f"a={MAX_AGE + 1}"):
            error = self.assertRaises(SettingError, timeToLiveOf, line)
            words = f"PATTERN=SECONDS, e.g. prices.#=60, with seconds over 0 and up to {MAX_AGE}"
            self.assertEqual(str(error), f"message-ttl is {line!r}, but must be {words}")

    def test_threeModesOneOfThemWithMilliseconds(self) -> None:
        """Three modes, one of them with milliseconds."""
        self.assertEqual([fsyncOf("always"), fsyncOf("never")], [("always", 0), ("never", 0)])
        self.assertEqual([fsyncOf(f"interval:{ms}").milliseconds for ms in (1, MAX_INTERVAL)], [1, MAX_INTERVAL])
        for written in ("", "sometimes", "interval", "interval:", "interval:0", f"interval:{MAX_INTERVAL + 1}"):
            self.assertIn(f"fsync is {written!r}, but must be", str(self.assertRaises(SettingError, fsyncOf, written)))

    def test_patternIsTopicsLengthAndNotAboutWhatBrokerSaysOfItself(self) -> None:
        """A pattern is a topic's length, and not about what the broker says of itself."""
        for good in ("a", "#", "*.b", "$dead/a", "$system", "é" * 512):
            checkPattern("durable", good, good)
        for bad in ("", "a" * 1025, "é" * 513, "$sys/#", "$sys.clients", "$sys"):
            self.assertRaises(SettingError, checkPattern, "durable", bad, bad)

    def test_onlyLast(self) -> None:
        """A level # anywhere but at the end would be one of that name, which nobody means."""
        words = "only the last level of a pattern can be #, e.g. orders.#"
        for bad in ("a.#.b", "#.a", "#/#", "a/#.b", "#."):
            error = self.assertRaises(SettingError, checkPattern, "durable", bad, bad)
            self.assertEqual(str(error), f"durable is {bad!r}, but {words}")
        for read, line in ((retentionOf, "a.#.b=7d"), (timeToLiveOf, "a.#.b=7")):
            self.assertIn(words, str(self.assertRaises(SettingError, read, line)))
        for good in ("a.#", "#a.b", "a/#"):
            checkPattern("durable", good, good)

    def test_neverMatching(self) -> None:
        """A pattern that matches no topic that its author means is refused by every option with patterns."""
        for bad in ("payroll-*", "payroll#", " payroll.#", "pay..x", "payroll.# ", "pay\troll"):
            error = self.assertRaises(SettingError, checkPattern, "durable", bad, bad)
            self.assertTrue(str(error).startswith(f"durable is {bad!r}, but "), error)
            self.assertRaises(SettingError, retentionOf, f"{bad}=7d")
            self.assertRaises(SettingError, timeToLiveOf, f"{bad}=7")

    def test_wildcardsOfNATSAndMQTTAreRefusedWithRightOnes(self) -> None:
        """Wildcards of NATS and MQTT are refused with the right ones."""
        for bad, right in (("a.>", "a.#"), ("a/+/b", "a/*/b")):
            error = self.assertRaises(SettingError, checkPattern, "durable", bad, bad)
            self.assertEqual(
                str(error), f"durable is {bad!r}, but the wildcards are * and #, not > and +: did you mean {right!r}?"
            )

    @given(st.text())
    def test_anyText(self, line: str) -> None:
        """Whatever is written is read or refused, never anything else."""
        for read in (retentionOf, timeToLiveOf, fsyncOf):
            try:
                read(line)
            except SettingError as error:
                self.assertIn(repr(line), str(error))
