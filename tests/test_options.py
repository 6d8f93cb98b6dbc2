"""The command line, read in this process; tests.test_tap runs the real program."""

import io
from contextlib import redirect_stdout

from twisted.trial.unittest import SynchronousTestCase

from fleximq import __version__
from fleximq.options import Options
from fleximq.settings import OPTIONS, Settings


def read(*words: str) -> Settings:
    """Return the settings of a command line."""
    options = Options()
    options.parseOptions(words)
    return options.settings


class OptionsTests(SynchronousTestCase):
    """What is given ends in the settings."""

    def said(self, *words: str) -> object:
        """Return what the program ends with."""
        return self.assertRaises(SystemExit, Options().parseOptions, words).code

    def test_nothing(self) -> None:
        """Without any option everything has its default: all dialects on port 7890."""
        self.assertEqual(read(), Settings())
        self.assertEqual(read().listen, ("tcp:7890",))

    def test_listen(self) -> None:
        """Listeners add up in their order, and take the place of the default."""
        self.assertEqual(read("--listen", "tcp:0", "--listen=minimq+tcp:1").listen, ("tcp:0", "minimq+tcp:1"))

    def test_values(self) -> None:
        """Times, counts, sizes, switches and repeated texts are read."""
        settings = read(
            "--keepalive", "0.5", "--max-deliveries=3", "--max-line", "64KiB", "--bcast-echo",
            "--allowed-origin", "https://a.example", "--allowed-origin", "*",
        )  # fmt: skip
        self.assertEqual((settings.keepalive, settings.maxDeliveries, settings.limits.line), (0.5, 3, 65536))
        self.assertEqual((settings.bcastEcho, settings.allowAnonymous), (True, False))
        self.assertEqual(settings.allowedOrigin, ("https://a.example", "*"))

    def test_spawn(self) -> None:
        """Programs to run add up in their order."""
        self.assertEqual(read("--spawn", "true", "--spawn=cat -u").spawn, ("true", "cat -u"))

    def test_twoCommandLines(self) -> None:
        """One command line leaves nothing behind for the next."""
        read("--listen", "tcp:0", "--bcast-echo")
        self.assertEqual(read(), Settings())

    def test_wrongValue(self) -> None:
        """A wrong value is one sentence."""
        self.assertEqual(
            self.said("--keepalive=0"), "fleximq: keepalive is 0, but must be over 0 and at most 31622400 seconds"
        )

    def test_wrongListen(self) -> None:
        """An endpoint that cannot be understood is found before anything starts."""
        self.assertEqual(
            self.said("--listen", "tcp:1", "--listen", "tcp:http"),
            "fleximq: listen is 'tcp:http', but 'http' is not a number",
        )

    def test_wrongWords(self) -> None:
        """So is an unknown option, a missing or needless value, a bare word."""
        for words, reason in {
            ("--lisen", "tcp:1"): "option --lisen not recognized",
            ("--listen",): "option --listen requires argument",
            ("--bcast-echo=1",): "option --bcast-echo must not have an argument",
            ("tcp:1",): "unexpected argument 'tcp:1', all options begin with --",
        }.items():
            self.assertEqual(self.said(*words), f"fleximq: {reason}; twistd fleximq --help lists the options")

    def test_help(self) -> None:
        """The help names every option, its words and its default, within 80 columns."""
        text = str(Options())
        flat = " ".join(text.split())
        for option in OPTIONS:
            self.assertIn(f"--{option.name}", text)
            self.assertIn(option.words, flat)
        for default in ("[default: tcp:7890]", "[default: 16MiB]", "[default: 3600]", "[default: 20]"):
            self.assertIn(default, flat)
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        self.assertIn("Examples:", text)

    def test_version(self) -> None:
        """The version is ours, not Twisted's."""
        output = io.StringIO()
        with redirect_stdout(output):
            self.assertEqual(self.said("--version"), 0)
        self.assertEqual(output.getvalue(), f"FlexiMQ {__version__}\n")
