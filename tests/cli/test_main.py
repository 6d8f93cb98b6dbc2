"""The command line: unknown words, and Control-C."""

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from fleximq.cli.main import main
from tests.fork_server import Forked


class MainTests(SynchronousTestCase):
    """Wrong words."""

    def refused(self, *words: str) -> str:
        """Return the sentence with which these end."""
        return str(self.assertRaises(SystemExit, main, words).code)

    def test_option(self) -> None:
        """An option that a command does not have is answered by that command, which says where its options are."""
        self.assertEqual(
            self.refused("pub", "rooms", "-q"), "fleximq pub: unrecognized arguments: -q; fleximq pub --help says more"
        )
        for words, said in (
            (("pub", "--cuont", "3", "a", "b"), "unrecognized arguments: --cuont; did you mean --count?"),
            (("pub", "--cuont=3", "a", "b", "c"), "unrecognized arguments: --cuont; did you mean --count?"),
            (("sub", "a", "--as", "json"), "unrecognized arguments: --as; did you mean --format?"),
            (("pub", "a", "--format=json"), "unrecognized arguments: --format; did you mean --as?"),
            (("pub", "a", "--cafile", "x"), "unrecognized arguments: --cafile; did you mean --tls-authority?"),
            (("produce", "q", "x", "--as", "json"), "unrecognized arguments: --as; did you mean --json?"),
            (("tail", "--for", "1"), "unrecognized arguments: --for; fleximq tail --help says more"),
            (("completion", "bash", "--ca"), "unrecognized arguments: --ca; fleximq completion --help says more"),
            (("ping", "tcp://localhost"), "unrecognized arguments: tcp://localhost; --url names the broker"),
            (
                ("ping", "a", "b"),
                "unrecognized arguments: a b; a text with blanks needs quotes; fleximq ping --help says more",
            ),
        ):
            self.assertEqual(self.refused(*words), f"fleximq {words[0]}: {said}")

    def test_emptyOption(self) -> None:
        """An empty text is that of a variable that is not set, unless the option is for any text."""
        for words, said in (
            (("sql", "select 1", "--journal", ""), "--journal is empty, but must be FOLDER"),
            (("sql", "select 1", "--lake="), "--lake is empty, but must be FOLDER"),
            (("sql", "select 1", "--table", ""), "--table is empty, but must be NAME=TOPICS[:FORMAT]"),
            (("sub", "a", "--url", ""), "--url is empty, but must be URL"),
            (("sub", "a", "--tls-authority", ""), "--tls-authority is empty, but must be FILE"),
            (("check-config", ""), "FILE is empty"),
        ):
            self.assertEqual(self.refused(*words), f"fleximq {words[0]}: {said}; fleximq {words[0]} --help says more")
        with redirect_stderr(io.StringIO()) as output:
            self.assertEqual(main(["values", "ls", "--prefix", "", "--url", "tcp://127.0.0.1:1"]), 1)
        self.assertIn("cannot connect", output.getvalue())

    def test_groupsListByDefault(self) -> None:
        """As ``ls`` does: here without a broker."""
        for words in (("schedules",), ("schedules", "--json"), ("ban",), ("queues",)):
            with redirect_stderr(io.StringIO()) as said:
                self.assertEqual(main([*words, "--url", "tcp://127.0.0.1:1"]), 1)
            self.assertIn("cannot connect", said.getvalue())

    def test_optionInFront(self) -> None:
        """An option in front of the command is told where it belongs, whoever has it."""
        for words, place in (
            (("--profile", "home", "ping"), "ping --profile"),
            (("--url=tcp://localhost", "pub", "rooms"), "pub --url"),
            (("-q",), "COMMAND -q"),
        ):
            self.assertEqual(
                self.refused(*words),
                f"fleximq: options follow the command: fleximq {place}; fleximq --help says more",
            )

    def test_command(self) -> None:
        """A command that there is not is answered by the whole; without one the help is shown."""
        said = self.refused("xyz")
        self.assertTrue(said.startswith("fleximq: ") and said.endswith("; fleximq --help says more"), said)
        for words, sentence in (
            (("queus",), "fleximq: there is no command 'queus'; did you mean queues?"),
            (("PUB",), "fleximq: there is no command 'PUB'; did you mean pub?"),
            (("wxyz",), "fleximq: there is no command 'wxyz'; fleximq --help says more"),
            (("queues", "peak", "jobs"), "fleximq queues: there is no command 'peak'; did you mean peek?"),
            (("kick", "7"), "fleximq: there is no command 'kick'; did you mean clients disconnect?"),
            (("ban", "10.0.0.1"), "fleximq ban: there is no command '10.0.0.1'; only add, ls, remove"),
            (("ban", "rm", "10.0.0.1"), "fleximq ban: there is no command 'rm'; did you mean remove?"),
            (
                ("queues", "jobs"),
                "fleximq queues: there is no command 'jobs'; only ls, info, purge, peek, define, pause, resume, "
                "delete, move; fleximq queues info jobs shows one",
            ),
            (
                ("cluster",),
                "fleximq cluster: a command must follow: try, status, move, refill, adopt, forget; "
                "fleximq cluster --help says more",
            ),
            (
                ("enqueue", "q", "v", "--priority", "10"),
                "fleximq enqueue: --priority is 10, but must be 0 to 9; fleximq enqueue --help says more",
            ),
            (("pub", "a", "{}", "--as", "jsn"), "fleximq pub: --as is 'jsn'; did you mean json?"),
        ):
            self.assertEqual(self.refused(*words), sentence)
        for asked in [], ["help"]:
            with redirect_stdout(io.StringIO()) as shown:
                try:
                    self.assertEqual(main(asked), 0)
                except SystemExit as ended:
                    self.assertEqual(ended.code, 0)
            self.assertTrue(shown.getvalue().startswith("usage: fleximq "))

    def test_noHost(self) -> None:
        """A host name that cannot be one is told in a sentence."""
        with redirect_stderr(io.StringIO()) as told:
            self.assertEqual(main(("pub", "--url", f"tcp://{'a' * 70}:1", "--timeout", "1", "t", "x")), 1)
        self.assertEqual(told.getvalue().count("\n"), 1, told.getvalue())

    def test_numbers(self) -> None:
        """A number that is none, or not over 0, is told with what is wanted."""
        for option, value, wanted in (
            ("--count", "0", "whole number over 0"), ("--count", "1.5", "whole number over 0"),
            ("--for", "soon", "number of seconds over 0"), ("--for", "inf", "number of seconds over 0"),
        ):  # fmt: skip
            self.assertIn(f"argument {option}: {value!r} is no {wanted};", self.refused("sub", "rooms", option, value))


class BrokerTests(SynchronousTestCase):
    """``fleximq broker``."""

    def test_broker(self) -> None:
        """It takes the options of twistd fleximq, runs in the foreground, and leaves no file of its own."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        words = ["fleximq", "broker", "--listen", "tcp:0:interface=127.0.0.1"]
        with Forked(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            assert process.stdout is not None
            self.assertTrue(any(b"Listening on tcp:127.0.0.1:" in line for line in process.stdout))
            process.terminate()
            process.wait(300)
        self.assertEqual(list(folder.iterdir()), [])

    def test_wrong(self) -> None:
        """A wrong option is one sentence."""
        words = ["fleximq", "broker", "--listen", "nowhere:1"]
        with Forked(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            said = process.communicate(timeout=300)
        sentence = b"fleximq: listen is 'nowhere:1', but there is no kind of endpoint named 'nowhere': "
        sentence += b"use tcp:7890, unix:PATH or tls://0.0.0.0:7891\n"
        self.assertEqual((process.returncode, said), (1, (b"", sentence)))


_ROOT = Path(__file__).parents[2]
_INTERRUPTED_IMPORT = """
import signal, sys
from fleximq.cli.main import main

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job starts with SIGINT ignored
sys.meta_path.insert(0, Interrupting())
sys.exit(main(["serve", "/time", "date"]))
"""


class InterruptTests(SynchronousTestCase):
    """Control-C while modules are imported."""

    def test_imports(self) -> None:
        """It ends the command with 130 and without a traceback, during the first import and during a later one."""
        for module in ("fleximq.cli.commands", "fleximq.cli.client_commands.requests", "fleximq.client.backoff"):
            done = subprocess.run(
                [sys.executable, "-c", _INTERRUPTED_IMPORT, module], cwd=_ROOT, capture_output=True, timeout=300
            )
            self.assertEqual((done.returncode, done.stdout, done.stderr), (130, b"", b""), module)
