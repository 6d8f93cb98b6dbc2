"""``fleximq check-config``: what it says of good and of bad files."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq import __version__
from fleximq.cli.main import main
from fleximq.compiled.choice import IMPLEMENTATION
from fleximq.config.settings import Settings


class CheckConfigTests(SynchronousTestCase):
    """The command, run in this process."""

    def check(self, content: str | None, against: str | None = None) -> tuple[int, list[str], list[str]]:
        """Return the exit code and what is printed about a file that holds this, or is not there.

        :param against: what the file holds with which a broker runs.
        """
        self.path = str(Path(self.mktemp()).absolute())
        if content is not None:
            Path(self.path).write_text(content)
        words = ["check-config", self.path]
        if against is not None:
            self.old = self.path + ".old"
            Path(self.old).write_text(against)
            words += ["--against", self.old]
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
        return code, out.getvalue().splitlines(), err.getvalue().splitlines()

    def test_good(self) -> None:
        """What differs from the defaults is shown, in the order of the documentation, as TOML."""
        code, out, err = self.check(
            'max-line = 65536\nkeepalive = 5\nhandshake-timeout = 10\nbcast-echo = true\nlisten = "tcp:0"\n'
            'allowed-origin = ["https://a.example", "*"]\nredelivery = 0.5\n'
        )
        self.assertEqual((code, err), (0, []))
        self.assertEqual(
            out,
            [
                f"# {self.path} is good; ports and folders are tried when the broker starts.",
                "# Settings that differ from the defaults:",
                'listen = ["tcp:0"]',
                "keepalive = 5",
                'allowed-origin = ["https://a.example", "*"]',
                'max-line = "64KiB"',
                "redelivery = 0.5",
                "bcast-echo = true",
            ],
        )

    def test_against(self) -> None:
        """What a reload would change is named, and what would need a restart."""
        self.assertEqual(
            self.check('keepalive = 5\nlisten = "tcp:0"\nbcast-echo = true\n', "keepalive = 4\nbcast-echo = true\n"),
            (0, ["# A reload changes: keepalive", "# These need a restart to change: listen"], []),
        )
        self.assertEqual(
            self.check("keepalive = 5", "keepalive = 5"), (0, ["# A reload changes: nothing in the settings"], [])
        )

    def test_json(self) -> None:
        """With ``--json`` all of it is one object, also a fault and the changes."""
        found = self.check("keepalive = 5\n", "keepalive = 4\n")[1]
        self.assertEqual(found, ["# A reload changes: keepalive"])
        for words, code, wanted in (
            ((), 0, {"faults": [], "notes": [], "settings": {"keepalive": 5}}),
            (("--against", self.old), 0, {"changed": ["keepalive"], "waiting": []}),
            (("--against", "/none"), 1, {"faults": ["/none cannot be read: no such file or directory"]}),
        ):
            output = io.StringIO()
            with contextlib.redirect_stdout(output):
                self.assertEqual(main(["check-config", self.path, "--json", *words]), code)
            told = json.loads(output.getvalue())
            self.assertEqual({name: told[name] for name in wanted}, wanted)

    def test_againstRefused(self) -> None:
        """What a reload would refuse is said, and ends with 1; so is what is wrong in the other file."""
        code, out, err = self.check("keepalive = 5", "[roles.everyone]\npublish = true\n")
        self.assertEqual((code, out, len(err)), (1, [], 1))
        self.assertIn("roles and principals are gone", err[0])
        self.assertEqual(self.check("", "keepalive = 5"), (1, [], [f"fleximq: {self.path} is empty"]))
        code, out, err = self.check("keepalive = 5", "keepalive = 0")
        self.assertEqual((code, out, err[0].split(":")[1].strip()), (1, [], self.old))

    def test_shownIsRead(self) -> None:
        """What is shown sets the same."""
        content = 'listen = ["tcp:0", "unix:/tmp/a\\"b\\u007f"]\nmax-clients = 5\nrequest-timeout = 1e3\n'
        _, out, _ = self.check(content)
        self.assertEqual(Settings.of(tomllib.loads("\n".join(out))), Settings.of(tomllib.loads(content)))

    def test_defaultsOnly(self) -> None:
        """A file that changes nothing is good."""
        for content in ("", 'listen = "tcp:7890"'):
            code, [good, nothing], err = self.check(content)
            self.assertEqual((code, nothing, err), (0, "# It sets only defaults.", []))
            self.assertEqual(good, f"# {self.path} is good; ports and folders are tried when the broker starts.")

    def test_notes(self) -> None:
        """What is not wrong, but should be known, is a comment."""
        tokens = Path(self.mktemp()).absolute()
        tokens.write_text("")
        tokens.chmod(0o644)
        self.addCleanup(os.umask, os.umask(0o022))
        code, out, _ = self.check(f'auth = "tokens:{tokens}"')
        self.assertEqual(
            (code, out[1:3], out[5:]),
            (
                0,
                [
                    f"# Note: {tokens} is open to others than its owner: chmod 600 {tokens}",
                    f"# Note: {self.path} is open to all users of this machine: chmod o= {self.path}",
                ],
                [f'auth = ["tokens:{tokens}"]'],
            ),
        )
        self.assertIn("to name an admin", out[3])

    def test_sharedNames(self) -> None:
        """So is that two checkers may give the same name, which a table names."""
        content = 'auth = ["certificate:", "certificate:name=dns"]\n'
        _, out, _ = self.check(content + "[principals.alice]\npublish = true\n")
        self.assertIn("# Note: auth certificate and auth certificate can give clients the same name,", "\n".join(out))
        self.assertNotIn("the same name", "\n".join(self.check(content)[1]))

    def test_bad(self) -> None:
        """Everything that is wrong is a sentence of its own that names the file; nothing is shown."""
        code, out, err = self.check('keepalive = 0\nkeep-alive = 1\nlisten = "foo:1"\nextension = "none-such"\n')
        self.assertEqual((code, out, len(err)), (1, [], 4))
        self.assertEqual(
            err[:3],
            [
                f"fleximq: {self.path}: keepalive is 0, but must be over 0 and at most 31622400 seconds",
                f"fleximq: {self.path}: there is no setting named keep-alive, did you mean keepalive?",
                f"fleximq: {self.path}: listen is 'foo:1', but there is no kind of endpoint named 'foo': "
                "use tcp:7890, unix:PATH or tls://0.0.0.0:7891",
            ],
        )
        self.assertIn(f"fleximq: {self.path}: there is no extension named 'none-such'; installed: ", err[3])

    def test_missing(self) -> None:
        """So is a file that is not there, or no TOML."""
        code, out, err = self.check(None)
        self.assertEqual((code, out, err), (1, [], [f"fleximq: {self.path} cannot be read: no such file or directory"]))
        code, out, err = self.check("a\n")
        self.assertEqual((code, out), (1, []))
        self.assertIn(f"fleximq: {self.path} is not TOML: ", err[0])


class MainTests(SynchronousTestCase):
    """Which command is meant."""

    def said(self, *words: str) -> tuple[object, str]:
        """Return the exit code and all that is printed."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = self.assertRaises(SystemExit, main, words).code
        return code, output.getvalue()

    def test_help(self) -> None:
        """The help names every command."""
        code, text = self.said("--help")
        self.assertEqual(code, 0)
        self.assertIn("check-config", text)

    def test_version(self) -> None:
        """The version is that of the package."""
        self.assertEqual(self.said("--version"), (0, f"FlexiMQ {__version__} ({IMPLEMENTATION})\n"))

    def test_wrongWords(self) -> None:
        """An unknown command or too few words end with one sentence, and so with 1."""
        for words in (("chek-config",), ("check-config",)):
            sentence = self.said(*words)[0]
            self.assertRegex(str(sentence), "^fleximq.*(--help says more|did you mean check-config[?])$")
            self.assertNotIn("\n", str(sentence))

    def test_asModule(self) -> None:
        """``python -m fleximq.cli`` is the same, without a traceback."""
        root = Path(__file__).parents[2]
        ended = subprocess.run(
            [sys.executable, "-m", "fleximq.cli", "check-config", "/there/is/no/such"],
            cwd=root, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        self.assertEqual(
            (ended.returncode, ended.stdout, ended.stderr),
            (1, "", "fleximq: /there/is/no/such cannot be read: no such file or directory\n"),
        )

    def test_closedPipe(self) -> None:
        """Whoever reads the output may have had enough: that is no reason for a traceback."""
        path = Path(self.mktemp()).absolute()
        path.write_text("keepalive = 5\n")
        reading, writing = os.pipe()
        os.close(reading)
        try:
            ended = subprocess.run(
                [sys.executable, "-m", "fleximq.cli", "check-config", str(path)],
                cwd=Path(__file__).parents[2], stdout=writing, stderr=subprocess.PIPE, text=True, timeout=300,
            )  # fmt: skip
        finally:
            os.close(writing)
        self.assertEqual((ended.returncode, ended.stderr), (128 + signal.SIGPIPE, ""))
