"""What an operator can set, and what each setting may be."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from twisted.trial.unittest import SynchronousTestCase

from fleximq.config.extension_options import extensions
from fleximq.config.option_table import OPTIONS, TABLES
from fleximq.config.option_values import count, flag, formattedSize, seconds, size, text, texts
from fleximq.config.rate_options import byteRate, rate
from fleximq.config.settings import (
    MAX_HISTORY,
    MAX_SECONDS,
    SEGMENT_BYTES,
    Settings,
    command,
)
from fleximq.errors import SettingError
from fleximq.limits import Limits


class ReaderTests(SynchronousTestCase):
    """How one value is read."""

    def refused(self, read: Any, value: object) -> str:
        """Return the sentence with which a value is refused."""
        return str(self.assertRaises(SettingError, read, "some-name", value))

    def test_timesAreNumbersOrTextWholeOrWithFraction(self) -> None:
        """Times are numbers or text, whole or with a fraction."""
        self.assertEqual(
            [seconds("t", value) for value in (3, 0.5, "30", "0.25", "1e3")], [3.0, 0.5, 30.0, 0.25, 1000.0]
        )

    def test_noSeconds(self) -> None:
        """What is no finite number is no time; the sentence names option, value and what is allowed."""
        for value in ("", "soon", "nan", "inf", "-inf", "1 2", True, None, [1], 10**400, "1e999"):
            self.assertEqual(
                self.refused(seconds, value),
                f"some-name is {value!r}, but must be a number of seconds, e.g. 30 or 0.5",
            )

    def test_countsAreWholeNumbers(self) -> None:
        """Counts are whole numbers."""
        self.assertEqual([count("n", 7), count("n", "12")], [7, 12])
        for value in ("", "1.5", "-1", "1_000", "٣", 1.5, True, None):
            self.assertEqual(self.refused(count, value), f"some-name is {value!r}, but must be a whole number")

    def test_sizesAreBytesOrHaveUnitInAnyCase(self) -> None:
        """Sizes are bytes, or have a unit in any case."""
        read = {65536: 65536, "65536": 65536, "10B": 10, "64KiB": 65536, "16mib": 16 << 20, "1 GIB": 1 << 30, "0": 0}
        self.assertEqual({value: size("s", value) for value in read}, read)

    def test_noSize(self) -> None:
        """Other units, fractions and signs are refused."""
        for value in ("", "KiB", "1KB", "1.5MiB", "-1", "5 TiB", "1" * 19, 1.5, True, None, "1KiB\n"):
            self.assertIn("but must be a number of bytes, e.g. 65536, 64KiB", self.refused(size, value))

    def test_spelledSize(self) -> None:
        """What is shown of a size is read back as the same."""
        spelled = {
            0: "0",
            1: "1",
            1023: "1023",
            1024: "1KiB",
            1536: "1536",
            65536: "64KiB",
            3 << 20: "3MiB",
            1 << 40: "1024GiB",
        }
        self.assertEqual({number: formattedSize(number) for number in spelled}, spelled)
        self.assertEqual([size("s", each) for each in spelled.values()], list(spelled))

    def test_switchIsTrueOrFalseNotSomethingLikeIt(self) -> None:
        """A switch is true or false, not something like it."""
        self.assertEqual([flag("f", True), flag("f", False)], [True, False])
        for value in (1, 0, "true", None):
            self.assertEqual(self.refused(flag, value), f"some-name is {value!r}, but must be true or false")

    def test_whatMayBeRepeatedIsOneTextOrListOfThem(self) -> None:
        """What may be repeated is one text or a list of them."""
        self.assertEqual([texts("l", "a"), texts("l", ["a", "b"]), texts("l", ())], [("a",), ("a", "b"), ()])
        for value in (1, [1], None, {"a": 1}):
            self.assertIn("but must be a text or a list of texts", self.refused(texts, value))

    def test_oneTextIsTakenAsItIs(self) -> None:
        """One text is taken as it is."""
        self.assertEqual(text("t", "/tmp"), "/tmp")
        for value in (1, None, ["a"]):
            self.assertEqual(self.refused(text, value), f"some-name is {value!r}, but must be a text")

    def test_commandLineIsSplitAsShellDoes(self) -> None:
        """A command line is split as a shell does."""
        self.assertEqual(command("python -c 'print(1, 2)' a\\ b"), ["python", "-c", "print(1, 2)", "a b"])

    def test_noCommand(self) -> None:
        """A command line needs a program, quotations an end."""
        for line in ("", "  ", "''", "a\0b"):
            error = self.assertRaises(SettingError, Settings.of, {"spawn": ["true", line]})
            self.assertEqual(str(error), f"spawn is {line!r}, but must be a program and its arguments")
        error = self.assertRaises(SettingError, Settings.of, {"spawn": "echo 'x"})
        self.assertEqual(str(error), 'spawn is "echo \'x", but cannot be split: no closing quotation')

    @given(st.text())
    def test_anyText(self, text: str) -> None:
        """Whatever is written is read or refused, never anything else."""
        for read in (seconds, count, size):
            try:
                read("x", text)
            except SettingError as error:
                self.assertIn(repr(text), str(error))


class RangeTests(SynchronousTestCase):
    """What values are allowed, at, below and above each limit."""

    def test_timesThatMustLast(self) -> None:
        """Deadlines that cannot be switched off are over 0."""
        for name in ("handshake-timeout", "keepalive", "redelivery", "queue-expiry", "durable-grace"):
            for value in (0.001, MAX_SECONDS):
                Settings.of({name: value})
            for value in (0, -1, MAX_SECONDS + 1):
                error = self.assertRaises(SettingError, Settings.of, {name: value})
                self.assertEqual(
                    str(error), f"{name} is {value:g}, but must be over 0 and at most {MAX_SECONDS} seconds"
                )

    def test_timesThatMayBeNothing(self) -> None:
        """The others may be 0."""
        for name in ("request-timeout", "subscription-grace", "consume-wait", "idempotence-window"):
            for value in (0, MAX_SECONDS):
                Settings.of({name: value})
            for wrong in (-0.5, MAX_SECONDS + 1):
                error = self.assertRaises(SettingError, Settings.of, {name: wrong})
                self.assertEqual(str(error), f"{name} is {wrong:g}, but must be between 0 and {MAX_SECONDS} seconds")

    def test_maxDeliveries(self) -> None:
        """At least one delivery, at most 2 to the 31st."""
        self.assertEqual([Settings(maxDeliveries=n).maxDeliveries for n in (1, 1 << 31)], [1, 1 << 31])
        for value in (0, (1 << 31) + 1):
            self.assertRaises(SettingError, Settings, maxDeliveries=value)

    def test_ipcDir(self) -> None:
        """Relative paths begin in a folder that is absolute."""
        for value in ("", "run", "./run"):
            error = self.assertRaises(SettingError, Settings.of, {"ipc-dir": value})
            self.assertEqual(str(error), f"ipc-dir is {value!r}, but must be an absolute path")

    def test_limitsAreCheckedByTheirOwnClassWhoseSentencesNameOptionToo(self) -> None:
        """The limits are checked by their own class, whose sentences name the option too."""
        self.assertEqual(Settings.of({"max-message": "1GiB"}).limits.message, 1 << 30)
        error = self.assertRaises(SettingError, Settings.of, {"max-message": "2GiB"})
        self.assertTrue(str(error).startswith("max-message is 2147483648, but must be between"), error)

    def test_aListenerHasAnEndpoint(self) -> None:
        for value in ("", ["tcp:1", ""]):
            error = self.assertRaises(SettingError, Settings.of, {"listen": value})
            self.assertEqual(str(error), "listen is empty, but must name an endpoint, e.g. tcp:7890")

    def test_journalIsFolderWithName(self) -> None:
        """The journal is a folder with a name."""
        self.assertEqual(Settings.of({"journal": "/var/lib/x"}).journal, "/var/lib/x")
        for value in ("", "a\0b"):
            error = self.assertRaises(SettingError, Settings.of, {"journal": value})
            self.assertEqual(str(error), f"journal is {value!r}, but must name a folder")

    def test_journalLines(self) -> None:
        """What stands in a line of its own is read when the settings are made."""
        for name in ("durable", "retain", "retention", "message-ttl", "fsync"):
            value: Any = "" if name == "fsync" else ["a.#=7d", ""]
            error = self.assertRaises(SettingError, Settings.of, {name: value})
            self.assertTrue(str(error).startswith(f"{name} is "), error)

    def test_journalSizes(self) -> None:
        """A file of the journal has its bounds, the whole of it a least size or none; so has a history."""
        low, high = SEGMENT_BYTES
        for name, good, bad in (
            ("journal-segment", (low, high), (low - 1, high + 1, 0)),
            ("journal-max-bytes", (0, 2 * low, 1 << 60), (1, 2 * low - 1, (1 << 60) + 1)),
            ("history", (0, MAX_HISTORY), (MAX_HISTORY + 1,)),
        ):
            for number in good:
                Settings.of({name: number})
            for number in bad:
                error = self.assertRaises(SettingError, Settings.of, {name: number})
                self.assertTrue(str(error).startswith(f"{name} is {number}, but must be "), error)

    def test_allowedOrigin(self) -> None:
        """An origin is a scheme and a host, without anything behind; null, or all of them."""
        for good in ("*", "null", "https://example.com", "http://[::1]:8080", "app://x"):
            self.assertEqual(Settings.of({"allowed-origin": good}).allowedOrigin, (good,))
        for bad in (
            "example.com",
            "https://example.com/",
            "https://",
            "https://a b",
            "https://a/b?c",
            "https://u@h",
            "",
        ):
            error = self.assertRaises(SettingError, Settings.of, {"allowed-origin": bad})
            self.assertEqual(str(error), f"allowed-origin is {bad!r}, but must be like https://example.com, null or *")


class TableTests(SynchronousTestCase):
    """The table of options and the fields it fills."""

    def test_everyFieldHasAnOption(self) -> None:
        """Every field of settings and limits can be set."""
        own = {option.field for option in (*OPTIONS, *TABLES) if not option.isLimit}
        self.assertEqual(own | {"limits"}, set(Settings.__dataclass_fields__))
        limits = {option.field for option in OPTIONS if option.isLimit}
        self.assertEqual(limits, set(Limits.__dataclass_fields__))

    def test_writingEveryOptionsDefaultChangesNothingWhereItHasOne(self) -> None:
        """Writing every option's default changes nothing, where it has one."""
        found = {option.name: option.of(Settings()) for option in OPTIONS}
        defaults = {name: value for name, value in found.items() if value is not None}
        self.assertEqual(Settings.of(defaults), Settings())

    def test_eachFillsItsField(self) -> None:
        """A value reaches the field that the table names, and no other."""
        written: dict[Any, Any] = {
            seconds: 7.5,
            count: 7,
            size: 177777,
            flag: True,
            texts: ("x://y",),
            "durable": ("a.#",),
            "retain": ("a.#",),
            text: "/x",
            extensions: "x:a=1",
            rate: "7,70",
            byteRate: "7KiB",
            "slow-consumer": "drop",
            "over-rate": "refuse",
            "log-format": "json",
            "sender": "principal",
            "fsync": "never",
            "retention": "a=7d",
            "message-ttl": "a=7",
            "schema": ("a=/b",),
            "cluster": ("nats://a",),
            "cluster-auth": "token:a",
            "node": "a",
            "cluster-name": "a",
            "node-address": "a:1",
        }
        for option in OPTIONS:
            value = written.get(option.name) or written[option.read]
            settings = Settings.of({option.name: value})
            self.assertEqual(option.of(settings), option.read(option.name, value), option.name)
            self.assertNotEqual(settings, Settings(), option.name)

    def test_nameThatIsNoneIsRefused(self) -> None:
        """A name that is none is refused."""
        error = self.assertRaises(SettingError, Settings.of, {"keep-alive": 3})
        self.assertEqual(str(error), "there is no setting named keep-alive, did you mean keepalive?")
        error = self.assertRaises(SettingError, Settings.of, {"flavour": 3})
        self.assertEqual(str(error), "there is no setting named flavour")
