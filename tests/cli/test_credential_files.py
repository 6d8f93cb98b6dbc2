"""``fleximq passwd``, ``fleximq apikey`` and ``fleximq token``."""

import contextlib
import getpass
import io
import json
import os
import stat
import sys
import time
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from fleximq.security.checkers import passwords
from fleximq.security.checkers.hashed_secrets import LONGEST, faultOfHash, hashOf
from fleximq.security.checkers.passwords import isRight
from fleximq.security.secret_files import readEntries
from fleximq.values.key_pairs import newPrivateKey, publicKeyOf
from tests.security.secrets_on_disk import CHEAP


class Input(io.StringIO):
    """Standard input, at a terminal or not."""

    def __init__(self, text: str = "", terminal: bool = False) -> None:
        super().__init__(text)
        self._terminal = terminal

    def isatty(self) -> bool:
        """Say so."""
        return self._terminal


class CommandCase(SynchronousTestCase):
    """A command, run in this process on a file of the test."""

    def setUp(self) -> None:
        """Have no file yet."""
        self.patch(passwords, "_HASHER", CHEAP)
        self.path = Path(self.mktemp()).absolute()

    def run_(self, *words: str, input: Input | None = None) -> tuple[int, str, str]:
        """Return the exit code and what is printed."""
        self.patch(sys, "stdin", input or Input())
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(words)
        return code, out.getvalue(), err.getvalue()


class PasswdTests(CommandCase):
    """Passwords."""

    def passwd(self, *words: str, input: str = "one\n") -> tuple[int, str, str]:
        """Run it with a line at standard input."""
        return self.run_("passwd", str(self.path), *words, input=Input(input))

    def test_json(self) -> None:
        """With ``--json`` the result is an object."""
        self.assertEqual(json.loads(self.passwd("alice", "--json")[1]), {"file": str(self.path), "name": "alice"})
        self.assertEqual(json.loads(self.passwd("alice", "--delete", "--json")[1])["name"], "alice")
        told = json.loads(self.run_("token", str(self.path), "alice", "--json")[1])
        self.assertTrue(told["secret"].startswith("fmqt_"))

    def lines(self) -> list[str]:
        """Return the lines of the file, hashes left out where they are good for ``one``."""
        found = []
        for line in self.path.read_text().splitlines():
            name, hash, *roles = line.split(":")
            found.append(":".join([name, "one" if isRight(hash, b"one") else "other", *roles]))
        return found

    def test_made(self) -> None:
        """The file is made, for its owner only; the password is not shown."""
        self.assertEqual(self.passwd("alice"), (0, f"the password of alice is set in {self.path}\n", ""))
        self.assertEqual(self.lines(), ["alice:one"])
        self.assertEqual(stat.S_IMODE(os.stat(self.path).st_mode), 0o600)

    def test_changed(self) -> None:
        """The old entry gives way in its place, with its roles unless others are given."""
        for words, password in ((("alice", "--roles", "ops,dev"), "old"), (("bob",), "old"), (("alice",), "one")):
            self.passwd(*words, input=f"{password}\n")
        self.assertEqual(self.lines(), ["alice:one:ops,dev", "bob:other"])
        self.passwd("alice", "--roles", "ops")
        self.passwd("bob", "--roles", "dev")
        self.assertEqual(self.lines(), ["alice:one:ops", "bob:one:dev"])
        self.passwd("alice", "--roles", "")
        self.assertEqual(self.lines(), ["alice:one", "bob:one:dev"])

    def test_kept(self) -> None:
        """The earlier password remains for a while; with another change only the latest does, or none."""
        self.passwd("alice", "--roles", "ops", input="old\n")
        self.passwd("bob")
        self.passwd("alice", "--keep", "3d", input="newer\n")
        name, hash, roles, until = self.path.read_text().splitlines()[1].split(":")
        self.assertEqual((name, isRight(hash, b"old"), roles), ("alice", True, "ops"))
        [kept] = [each for each in readEntries(str(self.path), passwords.faultOfHash).all() if each.until is not None]
        self.assertLess(abs((kept.until or 0) - time.time() - 3 * 86400), 60)
        self.passwd("alice", "--keep", "12h")
        lines = self.path.read_text().splitlines()
        self.assertEqual([len(line.split(":")) for line in lines], [3, 4, 2])
        self.assertTrue(isRight(lines[1].split(":")[1], b"newer"))
        self.passwd("alice")
        self.assertEqual(self.lines(), ["alice:one:ops", "bob:one"])
        for wrong in ("3", "3w", "-1d", ""):
            self.assertIn("argument --keep", str(self.assertRaises(SystemExit, self.passwd, "bob", "--keep", wrong)))

    def test_deleted(self) -> None:
        """Somebody can be taken out, once."""
        self.passwd("alice")
        self.passwd("bob")
        self.assertEqual(self.passwd("alice", "--delete"), (0, f"alice is not in {self.path} any more\n", ""))
        self.assertEqual(self.lines(), ["bob:one"])
        self.assertEqual(
            self.passwd("alice", "--delete"), (1, "", f"fleximq: there is no entry named alice in {self.path}\n")
        )

    def test_comments(self) -> None:
        """What else stands in the file stays."""
        self.path.write_text("# people\n\n")
        self.passwd("alice")
        self.assertEqual(self.path.read_text().splitlines()[:2], ["# people", ""])

    def test_asked(self) -> None:
        """At a terminal it is asked for, twice."""
        for answers, code, words in (
            (["one", "one"], 0, ""),
            (["one", "two"], 1, "fleximq: the two passwords differ; nothing was changed\n"),
            (["", ""], 1, "fleximq: the password is empty; nothing was changed\n"),
        ):
            said = iter(answers)
            self.patch(getpass, "getpass", lambda prompt, said=said: next(said))
            outcome = self.run_("passwd", str(self.path), "alice", input=Input(terminal=True))
            self.assertEqual((outcome[0], outcome[2]), (code, words))
        self.assertEqual(self.lines(), ["alice:one"])

    def test_interrupted(self) -> None:
        """Ctrl-C at the question changes nothing."""

        def interrupt(prompt: str) -> Any:
            raise KeyboardInterrupt

        self.patch(getpass, "getpass", interrupt)
        outcome = self.run_("passwd", str(self.path), "alice", input=Input(terminal=True))
        self.assertEqual(outcome, (1, "", "fleximq: nothing was changed\n"))
        self.assertFalse(self.path.exists())

    def test_wrong(self) -> None:
        """What cannot be is one sentence, and the file stays as it is."""
        self.path.write_text("alice:secret\n")
        code, _, err = self.passwd("bob")
        self.assertEqual(
            (code, err), (1, f"fleximq: {self.path} cannot be understood: line 1, for alice, has no Argon2 hash\n")
        )
        self.assertEqual(self.path.read_text(), "alice:secret\n")
        self.path.unlink()
        for input, words in (("\n", "is empty"), ("", "is empty"), ("x" * 1025 + "\n", "has more than 1024 bytes")):
            self.assertIn(words, self.passwd("bob", input=input)[2])
        for name in ("", "a:b", "#a", "anonymous", "spawn:x", " a"):
            self.assertIn("argument NAME", str(self.assertRaises(SystemExit, self.passwd, name)))
        self.assertIn("argument --roles", str(self.assertRaises(SystemExit, self.passwd, "bob", "--roles", "a,,b")))
        self.path = Path("/none/such")
        self.assertEqual(self.passwd("bob")[2], "fleximq: /none/such cannot be written: no such file or directory\n")


class KeysTests(CommandCase):
    """Secrets that are made, or taken from standard input."""

    def make(self, *words: str, command: str = "apikey") -> str:
        """Make a secret, and return it."""
        code, out, err = self.run_(command, str(self.path), *words)
        self.assertEqual((code, err), (0, ""))
        return out.rstrip("\n")

    def lines(self) -> list[str]:
        """Return the lines of the file."""
        return self.path.read_text().splitlines()

    def test_made(self) -> None:
        """A secret is long and new, shown once, and hashed in the file."""
        for command, prefix in (("apikey", "fmqk_"), ("token", "fmqt_")):
            secrets = [self.make("alice", "--roles", "ops", command=command) for _ in range(2)]
            self.assertNotEqual(*secrets)
            for secret in secrets:
                self.assertRegex(secret, f"^{prefix}[A-Za-z0-9_-]{{43}}$")
            self.assertEqual(self.lines(), [f"alice:{hashOf(secrets[1])}:ops"])

    def test_beside(self) -> None:
        """A new one takes the place of all old ones, unless they are to stay; roles stay as they are."""
        first = self.make("alice", "--roles", "ops")
        self.make("bob")
        second = self.make("alice", "--beside")
        self.assertEqual(
            [self.lines()[0], self.lines()[2]], [f"alice:{hashOf(first)}:ops", f"alice:{hashOf(second)}:ops"]
        )
        third = self.make("alice")
        self.assertEqual((len(self.lines()), self.lines()[1]), (2, f"alice:{hashOf(third)}:ops"))

    def test_deleted(self) -> None:
        """All of a name are taken out together."""
        for words in (("alice",), ("alice", "--beside"), ("bob",)):
            self.make(*words)
        self.assertEqual(self.make("alice", "--delete"), f"alice is not in {self.path} any more")
        self.assertEqual([line.split(":")[0] for line in self.lines()], ["bob"])
        self.assertEqual(self.run_("token", str(self.path), "alice", "--delete")[0], 1)

    def test_kept(self) -> None:
        """Earlier ones remain for a while."""
        first = self.make("alice")
        second = self.make("alice", "--keep", "30m")
        third = self.make("alice", "--keep", "1d", "--beside")
        entries = readEntries(str(self.path), faultOfHash).all()
        self.assertEqual([each.hash for each in entries], [hashOf(each) for each in (first, second, third)])
        for entry, wanted in zip(entries, (1800, 86400), strict=False):
            self.assertLess(abs((entry.until or 0) - time.time() - wanted), 60)
        self.assertIsNone(entries[2].until)
        self.make("alice")
        self.assertEqual(len(self.lines()), 1)

    def test_keyPair(self) -> None:
        """A private key is shown once, and its public one is in the file; or a public one is taken over."""
        private = self.make("press", "--roles", "machine", command="keypair")
        self.assertEqual(self.lines(), [f"press:{publicKeyOf(private)}:machine"])
        for given, code in ((publicKeyOf(newPrivateKey()), 0), (newPrivateKey(), 1), (publicKeyOf(private), 1)):
            words = ("keypair", str(self.path), "other", "--stdin")
            self.assertEqual(self.run_(*words, input=Input(f"{given}\n"))[0], code)
        self.assertEqual(len(self.lines()), 2)
        self.make("other", "--delete", command="keypair")
        self.assertEqual(len(self.lines()), 1)

    def test_given(self) -> None:
        """A secret that there is already can be taken over; a short one is worth a word."""
        long = "x" * 22
        for secret, warned in ((long, False), (long[1:], True)):
            code, out, err = self.run_("apikey", str(self.path), "alice", "--stdin", input=Input(f"{secret}\n"))
            self.assertEqual(
                (code, out, "cannot be guessed" in err), (0, f"the API key of alice is set in {self.path}\n", warned)
            )
            self.assertEqual(self.lines(), [f"alice:{hashOf(secret)}"])

    def test_wrong(self) -> None:
        """Nobody gets another's secret; none is empty or too long."""
        self.run_("token", str(self.path), "alice", "--stdin", input=Input("the very same secret, long\n"))
        for name, given, words in (
            ("bob", "the very same secret, long\n", "alice already has this secret"),
            ("bob", "", "the token at standard input is empty"),
            ("bob", "x" * (LONGEST + 1) + "\n", f"the token has more than {LONGEST} characters"),
        ):
            code, _, err = self.run_("token", str(self.path), name, "--stdin", input=Input(given))
            self.assertEqual((code, err), (1, f"fleximq: {words}\n"))
        self.assertEqual(len(self.lines()), 1)
