"""``fleximq req``, ``serve``, ``notify``, ``ping``, ``tail`` and ``completion``."""

import json
import re
import shutil
import subprocess

from twisted.trial.unittest import SkipTest

from fleximq.cli.client_commands.sub import sentence
from fleximq.cli.commands import COMMANDS
from tests.cli.client_commands.commands import PATIENCE, CommandCase, ran


class RequestTests(CommandCase):
    """``req`` and ``serve``."""

    def serve(self, *words: str) -> tuple["subprocess.Popen[bytes]", str]:
        """Start ``serve``, and return the id of its client."""
        process = self.start("serve", *words)
        assert process.stderr is not None
        found = re.match(rb"client (\d+) answers ", process.stderr.readline())
        assert found is not None
        return process, found[1].decode()

    def test_broker(self) -> None:
        """The broker's own paths."""
        self.assertEqual(json.loads(ran("req", "broker", "/broker/about", "--format", "json").out)["name"], "FlexiMQ")

    def test_argument(self) -> None:
        """A value goes with the question."""
        found = ran("req", "broker", "/broker/clients", '{"limit": 1}', "--as", "json", "--json")
        told = json.loads(found.out)
        self.assertEqual((told["path"], len(told["value"]["clients"])), ("/broker/clients", 1))
        again = ran("req", "broker", "/broker/clients", "-", "--as", "json", "--json", input=b'{"limit": 1}')
        self.assertEqual(len(json.loads(again.out)["value"]["clients"]), 1)

    def test_served(self) -> None:
        """A command of the shell answers, and is told what was asked and by whom."""
        process, id = self.serve("/up", "tr a-z A-Z; echo; echo $FLEXIMQ_PATH $FLEXIMQ_SENDER", "--count", "1")
        found = ran("req", id, "/up", "hello")
        self.assertEqual((found.code, found.lines[:1]), (0, ["HELLO"]))
        self.assertRegex(found.lines[1], r"/up \d+")
        self.assertEqual(process.wait(PATIENCE), 0)

    def test_json(self) -> None:
        """What the command prints may be JSON, and what happens is told as JSON."""
        process, id = self.serve("/n", "echo '{\"a\": 1}'", "--as", "json", "--json", "--count", "1")
        self.assertEqual(ran("req", id, "/n").lines, ['{"a":1}'])
        out, _ = process.communicate(timeout=PATIENCE)
        self.assertEqual({**json.loads(out), "sender": 0}, {"path": "/n", "sender": 0, "status": 200})

    def test_failing(self) -> None:
        """A command that fails is answered with 500 and its last word; one that takes long with 504."""
        _, id = self.serve("/bad", "echo first >&2; echo broken >&2; exit 3")
        found = ran("req", id, "/bad")
        self.assertEqual((found.code, found.err), (1, "fleximq: 500 internal server error: broken\n"))
        _, id = self.serve("/slow", "sleep 30", "--limit", "0.1")
        self.assertIn("504", ran("req", id, "/slow").err)

    def test_nobody(self) -> None:
        """A client that is not there, and one that does not answer this path."""
        self.assertIn("600", ran("req", "999999", "/x").err)
        _, id = self.serve("/up", "cat")
        self.assertIn("404", ran("req", id, "/down").err)

    def test_wrong(self) -> None:
        """What is no client is one sentence."""
        for word in ("/x", "", "0"):
            found = ran("req", word, "/x")
            self.assertEqual(found.code, 1)
            self.assertIn(f"{word!r} is not a client", found.err)

    def test_named(self) -> None:
        """A service with a name is asked by it; a name that nobody has is answered with 600."""
        self.assertIn("600 client not found: there is no client named 'svc'", ran("req", "svc", "/up").err)
        self.serve("/up", "tr a-z A-Z", "--name", "svc")
        self.assertEqual(ran("req", "svc", "/up", "rain").lines, ["RAIN"])


class NotifyTests(CommandCase):
    """``notify``."""

    def test_one(self) -> None:
        """One client, by its id, hears path and value; all hear a broadcast."""
        client = self.client()
        heard = client.notifications()
        self.assertEqual(ran("notify", str(client.id), "/news", "rain"), (0, b"", ""))
        self.assertEqual(ran("notify", "all", "storm"), (0, b"", ""))
        found = [heard.next(PATIENCE), heard.next(PATIENCE)]
        self.assertEqual([(each.path, each.value) for each in found if each], [("/news", "rain"), (None, "storm")])

    def test_nobody(self) -> None:
        """A client that is not there is told."""
        found = ran("notify", "999999", "/news")
        self.assertEqual(found.code, 1)
        self.assertIn("600", found.err)

    def test_wrong(self) -> None:
        """Words that make no sense together."""
        self.assertIn("needs a PATH", ran("notify", "1000").err)
        self.assertIn("'rain' is the PATH, and a VALUE is missing", ran("notify", "1000", "rain").err)
        self.assertIn("has no path", ran("notify", "all", "/x", "y").err)


class WatchingTests(CommandCase):
    """``ping``, ``tail`` and ``completion``."""

    def test_ping(self) -> None:
        """Each answer is told, then their middle."""
        found = ran("ping", "--count", "3", "--interval", "0.01")
        self.assertEqual((found.code, len(found.lines)), (0, 4))
        self.assertIn("3 answers: ", found.lines[-1])
        self.assertEqual(json.loads(ran("ping", "--count", "1", "--json").out)["count"], 1)

    def test_tail(self) -> None:
        """Who comes and goes, as it happens."""
        asker = self.client()
        process = self.start("tail", "--count", "2")
        while not any(each["subscriptions"] for each in asker.ask("/broker/clients")["clients"]):
            self.assertIsNone(process.poll())
        ran("pub", "new.topic", "x")
        lines = process.communicate(timeout=PATIENCE)[0].decode().splitlines()
        self.assertRegex(lines[0], r"^\d\d:\d\d:\d\d fleximq-\d+ joined \(fleximq, client \d+\)$")
        self.assertRegex(lines[1], r" topic new\.topic came into being$")

    def test_sentences(self) -> None:
        """What the broker tells, in words."""
        self.assertEqual(sentence("$sys/clients/left", {"name": "a", "reason": "b"}), "a left: b")
        self.assertEqual(sentence("$sys/other", [1]), "$sys/other [1]")

    def test_completion(self) -> None:
        """The script for each shell knows all commands."""
        for shell in ("bash", "zsh", "fish", "tcsh"):
            script = ran("completion", shell).out.decode()
            self.assertEqual([name for name in COMMANDS if name not in script], [], shell)

    def test_fish(self) -> None:
        """Fish completes with it."""
        fish = shutil.which("fish")
        if fish is None:
            raise SkipTest("fish is not installed")
        script = ran("completion", "fish").out.decode()
        done = subprocess.run([fish, "--no-config", "-c", script + '\ncomplete -C "fleximq ben"'],
                              capture_output=True, text=True, timeout=PATIENCE)  # fmt: skip
        self.assertEqual(done.stdout.split()[:1], ["bench"], done.stderr)

    def test_bash(self) -> None:
        """Bash completes with it."""
        script = ran("completion", "bash").out.decode()
        ask = "\nCOMP_WORDS=(fleximq ben); COMP_CWORD=1; _shtab_fleximq; echo ${COMPREPLY[@]}\n"
        done = subprocess.run(["bash", "-c", script + ask], capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.stdout.split(), ["bench"], done.stderr)
