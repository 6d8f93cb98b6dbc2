"""The command line, read in this process; tests.test_tap runs the real program."""

import io
import os
import subprocess
from contextlib import redirect_stdout
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq import __version__
from fleximq.compiled.choice import IMPLEMENTATION
from fleximq.config.option_table import OPTIONS
from fleximq.config.setting_origins import Origin
from fleximq.config.settings import Settings
from fleximq.errors import SettingError
from fleximq.startup.options import Options
from tests.fork_server import Forked


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

    def test_config(self) -> None:
        """A file sets what the command line does not; a list that is given there takes the place of the file's."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write('listen = ["tcp:1", "tcp:2"]\nkeepalive = 5\nbcast-echo = true\nmax-line = "64KiB"\n')
        settings = read("--config", path)
        self.assertEqual((settings.listen, settings.keepalive), (("tcp:1", "tcp:2"), 5.0))
        self.assertEqual((settings.bcastEcho, settings.limits.line), (True, 65536))
        settings = read("--listen=tcp:3", "--keepalive=7", "--config", path)
        self.assertEqual((settings.listen, settings.keepalive), (("tcp:3",), 7.0))
        self.assertEqual((settings.bcastEcho, settings.limits.line), (True, 65536))

    def test_origins(self) -> None:
        """Each setting that is no default comes from the command line or a line of the file, also after a change."""
        path = self.mktemp()
        Path(path).write_text("# a file\nkeepalive = 5\nredelivery = 6\n")
        options = Options()
        options.parseOptions(["--config", path, "--redelivery=9", "--bcast-echo"])
        fromLine = Origin("command line")
        found = {"keepalive": Origin("file", path, 2), "redelivery": fromLine, "bcast-echo": fromLine}
        self.assertEqual(options.origins, found)
        Path(path).write_text("redelivery = 6\n\n[roles.a]\n")
        options.again()
        self.assertEqual(
            options.origins, {"roles": Origin("file", path, 3), "redelivery": fromLine, "bcast-echo": fromLine}
        )

    def test_completed(self) -> None:
        """What the file lacks may be on the command line."""
        path = self.mktemp()
        Path(path).write_text('durable = ["a"]\n')
        self.assertIn("nothing is kept without a journal", str(self.said("--config", path, "--listen=tcp:1")))
        options = Options()
        options.parseOptions(["--config", path, "--listen=tcp:1", "--journal", self.mktemp()])
        self.assertEqual(options.settings.durable, ("a",))

    def test_wrongConfig(self) -> None:
        """What is wrong in a file is said with its name, even where the command line would win."""
        path = self.mktemp()
        self.assertEqual(self.said("--config", path), f"fleximq: {path} cannot be read: no such file or directory")
        for content, sentence in {
            "keepalive = 0": "keepalive is 0, but must be over 0 and at most 31622400 seconds",
            "keepalife = 1": "there is no setting named keepalife, did you mean keepalive?",
            'listen = "foo:1"': (
                "listen is 'foo:1', but there is no kind of endpoint named 'foo': "
                "use tcp:7890, unix:PATH or tls://0.0.0.0:7891"
            ),
        }.items():
            with open(path, "w") as file:
                file.write(content)
            self.assertEqual(self.said("--config", path, "--listen=tcp:1"), f"fleximq: {path}: {sentence}")

    def test_again(self) -> None:
        """The file is read again, from where it was named; the command line wins as before."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("keepalive = 5\nredelivery = 6")
        options = Options()
        options.parseOptions(["--config", path, "--redelivery=9"])
        with open(path, "w") as file:
            file.write("keepalive = 7\nredelivery = 8")
        folder = os.getcwd()
        self.addCleanup(os.chdir, folder)
        os.chdir("/")
        again = options.again()
        self.assertEqual((again.keepalive, again.redelivery), (7.0, 9.0))
        self.assertEqual((options.settings.keepalive, options.settings.redelivery), (5.0, 9.0))

    def test_againWrong(self) -> None:
        """All that is wrong is said; a file that is gone or holds nothing is refused as well."""
        path = self.mktemp()
        with open(path, "w") as file:
            file.write("keepalive = 5")
        options = Options()
        options.parseOptions(["--config", path])
        for content, number, words in (
            ("keepalive = 0\nkeepalife = 1", 2, "keepalive is 0"),
            ("keepalive = ", 1, "is not TOML"),
            ("", 1, f"{path} is empty"),
            ("# nothing\n", 1, f"{path} is empty"),
        ):
            with open(path, "w") as file:
                file.write(content)
            sentences = str(self.assertRaises(SettingError, options.again)).splitlines()
            self.assertEqual(len(sentences), number)
            self.assertIn(words, sentences[0])
        os.remove(path)
        self.assertIn("cannot be read", str(self.assertRaises(SettingError, options.again)))

    def test_againWithout(self) -> None:
        """Without a file, the command line says all."""
        options = Options()
        options.parseOptions(["--keepalive=5"])
        self.assertEqual(options.again(), options.settings)

    def test_extension(self) -> None:
        """An unknown extension is a sentence that lists those that are installed."""
        self.assertIn("fleximq: there is no extension named 'none-such'; installed: ",
                      str(self.said("--extension", "none-such:a=b")))  # fmt: skip

    def test_wrongListen(self) -> None:
        """An endpoint that cannot be understood is found before anything starts."""
        self.assertEqual(
            self.said("--listen", "tcp:1", "--listen", "tcp:http"),
            "fleximq: listen is 'tcp:http', but 'http' is not a number",
        )

    def test_wrongWords(self) -> None:
        """So is an unknown option, a missing or needless value, a bare word."""
        more = "twistd fleximq --help lists the options"
        twistd = "it is an option of twistd: twistd --pidfile ... fleximq"
        for words, reason in {
            ("--lisen", "tcp:1"): "option --lisen not recognized; did you mean --listen?",
            (
                "--pidfile",
                "x",
            ): f"option --pidfile not recognized; {twistd}",
            ("--port", "7891"): "option --port not recognized; it is --listen PORT",
            ("--zzz", "tcp:1"): f"option --zzz not recognized; {more}",
            ("--listen",): f"option --listen requires argument; {more}",
            ("--bcast-echo=1",): f"option --bcast-echo must not have an argument; {more}",
            ("tcp:1",): f"unexpected argument 'tcp:1', all options begin with --; {more}",
        }.items():
            self.assertEqual(self.said(*words), f"fleximq: {reason}")

    def test_help(self) -> None:
        """The help names every option, its words and its default, within 80 columns."""
        text = str(Options())
        flat = " ".join(text.split())
        for option in OPTIONS:
            self.assertIn(f"--{option.name}", text)
            self.assertIn(option.words.removesuffix("."), flat)
        for default in ("[default: tcp:7890]", "[default: 16MiB]", "[default: 86400]", "[default: 20]"):
            self.assertIn(default, flat)
        self.assertEqual([line for line in text.splitlines() if len(line) > 80], [])
        self.assertIn("Examples:", text)
        titles = [line for line in text.splitlines() if line.endswith(":") and not line.startswith(" ")]
        self.assertEqual(titles, ["Listening:", "Security:", "Limits:", "Queues:", "Journal:", "Rates:", "Other:",
                                  "Examples:"])  # fmt: skip

    def test_closedPipe(self) -> None:
        """A reader that goes away ends help and version without a traceback."""
        for option in ("--help", "--version"):
            reading, writing = os.pipe()
            os.close(reading)
            with Forked(["twistd", "fleximq", option], stdout=writing, stderr=subprocess.PIPE) as process:
                os.close(writing)
                self.assertEqual((process.wait(300), process.stderr and process.stderr.read()), (141, b""))

    def test_version(self) -> None:
        """The version is ours, not Twisted's."""
        output = io.StringIO()
        with redirect_stdout(output):
            self.assertEqual(self.said("--version"), 0)
        self.assertEqual(output.getvalue(), f"FlexiMQ {__version__} ({IMPLEMENTATION})\n")
