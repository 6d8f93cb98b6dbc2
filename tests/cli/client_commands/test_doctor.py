"""``fleximq doctor``, and the hints of all commands about TLS."""

import json
import socket
from math import nan
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq import __version__
from fleximq.cli.client_commands import client_command
from fleximq.cli.client_commands.doctor import _about
from fleximq.cli.credential_files import setSecret
from fleximq.client.errors import Untrusted
from fleximq.values.urls import Url
from tests.certificates import makeCertificate
from tests.cli.client_commands.commands import CommandCase, ran


class DoctorTests(CommandCase):
    """A broker with TLS, tokens and permissions."""

    def setUp(self) -> None:
        """Start it with a port for TLS, and one without."""
        folder = Path(self.mktemp()).absolute()
        folder.mkdir()
        self.made = makeCertificate(folder)
        setSecret(str(folder / "tokens"), "alice", "alice's", ("operator",))
        setSecret(str(folder / "tokens"), "bob", "bob's")
        settings = folder / "settings.toml"
        settings.write_text('[roles.operator]\nread = ["broker/#"]\nadmin = ["broker/#"]\n[principals.bob]\n')
        self.options = (
            "--listen", "tcp:0:interface=127.0.0.1", "--listen", "tls://127.0.0.1:0",
            "--tls-certificate", str(self.made.certificate), "--tls-key", str(self.made.key),
            "--auth", f"tokens:{folder / 'tokens'}", "--config", str(settings),
        )  # fmt: skip
        super().setUp()
        self.secure = f"tls://localhost:{self.broker.port(1)}"
        self.trusting = ("--url", self.secure, "--tls-authority", str(self.made.certificate))

    def found(self, *words: str) -> dict[str, tuple[str, str]]:
        """Return result and advice of each check, by its name."""
        told = [json.loads(line) for line in ran("doctor", "--json", *words).lines]
        return {each["name"]: (each["result"], each["advice"]) for each in told}

    def test_checks(self) -> None:
        """All is well for the operator; each fault is told with what to do, and later checks are left out."""
        found = self.found(*self.trusting, "--token", "alice's")
        names = ("address", "tls", "credentials", "rights", "clock", "version", "admin")
        self.assertEqual(
            {name: result for name, (result, _) in found.items()}, {**dict.fromkeys(names, "ok"), "tls": "note"}
        )
        refused = {name: result for name, (result, _) in self.found(*self.trusting).items()}
        self.assertEqual(refused, {"address": "ok", "tls": "note", "credentials": "fault"})
        found = self.found("--token", "bob's")
        self.assertEqual([(name, result) for name, (result, _) in found.items()], [
            ("address", "ok"), ("credentials", "ok"), ("rights", "note"), ("admin", "note"),
        ])  # fmt: skip
        self.assertIn('read = ["broker/#"]', found["rights"][1])
        for words, name, advice in (
            (("--token", "wrong"), "credentials", "correct these credentials"),
            (("--url", self.secure), "tls", "--tls-authority FILE"),
            (("--url", self.secure, "--tls-authority", "nix"), "tls", "correct --tls-authority"),
            (("--url", self.secure.replace("tls", "tcp")), "tls", "begins with tls://"),
            (("--url", self.url.replace("tcp", "tls")), "tls", "begins with tcp://"),
            (("--url", "no.host.invalid:1"), "address", "name service"),
            (("--url", "ipc:///no/socket"), "address", "fleximq broker"),
        ):
            found = self.found(*words)
            self.assertEqual((list(found)[-1], found[name][0]), (name, "fault"), words)
            self.assertIn(advice, found[name][1])

    def test_text(self) -> None:
        """A line for each check, and the exit code."""
        good = ran("doctor", "--token", "alice's")
        self.assertEqual((good.code, good.lines[0]), (0, f"ok    address     {self.url} accepts connections"))
        bad = ran("doctor", "--token", "wrong")
        self.assertEqual((bad.code, bad.lines[1][:18], bad.lines[2][:25]), (1, "fault credentials ", f"{'':18}correct"))

    def test_queues(self) -> None:
        """A broker with credentials refuses MiniMQ clients without a certificate; produce and consume explain it."""
        wanted = "401 unauthorized: credentials are required here; MiniMQ has no credentials but a client certificate"
        for words in (("produce", "jobs", "x"), ("consume", "jobs")):
            found = ran(*words)
            self.assertEqual((found.code, wanted in found.err), (1, True), found.err)

    def test_hints(self) -> None:
        """Other commands tell the same about TLS, or that no broker runs; a host with a port is an address."""
        place = f"localhost:{self.broker.port(1)}"
        self.assertIn("this port speaks TLS, so the URL begins with tls://", ran("ping", "--url", place).err)
        self.assertIn("--tls-authority FILE names", ran("ping", "--url", self.secure).err)
        other = Untrusted("Hostname mismatch, certificate is not valid for 'there'.")
        hint = client_command.hintFor(other, Url.parse("tls://there:7891"))
        self.assertIn("a host for which the certificate is", hint or "")
        with socket.socket() as closed:
            closed.bind(("127.0.0.1", 0))
            told = ran("ping", "--url", f"127.0.0.1:{closed.getsockname()[1]}").err
        self.assertIn("Connection refused; no broker listens there: fleximq broker starts one\n", told)
        found = ran("ping", "--url", f"127.0.0.1:{self.broker.port()}", "--count", "1", "--token", "bob's")
        self.assertEqual(found.code, 0, found.err)

    def test_addresses(self) -> None:
        """The doctor checks each address of a cluster; other commands use the one that answers, and name it."""
        with socket.create_server(("127.0.0.1", 0)) as closed:
            places = [f"127.0.0.1:{port}" for port in (closed.getsockname()[1], self.broker.port())]
        token = ("--url", ",".join(places), "--token", "bob's")
        checked = ran("doctor", "--json", *token)
        found = [(each["url"], each["result"]) for each in map(json.loads, checked.lines) if each["name"] == "address"]
        self.assertEqual((checked.code, found), (1, [(f"tcp://{places[0]}", "fault"), (f"tcp://{places[1]}", "ok")]))
        for _ in range(3):  # the order is random
            self.assertIn(f"tcp://{places[1]} answered in", ran("ping", "--count", "1", *token).lines[0])

    def test_otherServer(self) -> None:
        """What listens there is no broker."""
        self.patch(client_command, "_PROBE_SECONDS", 0.2)
        with socket.create_server(("127.0.0.1", 0)) as server:
            found = self.found("--url", f"127.0.0.1:{server.getsockname()[1]}", "--timeout", "0.2")
        self.assertEqual(found["broker"], ("fault", "is this the port of a FlexiMQ broker?"))


class AboutTests(SynchronousTestCase):
    """What the broker reports about itself."""

    def test_about(self) -> None:
        """Clocks may differ by some seconds, versions are noted, and a journal must be writable."""
        about: dict[str, Any] = {"time": 0, "version": __version__, "implementation": "", "journal": None}
        for changed, wanted in (
            ({"time": 4000}, {}),
            ({"time": 6000}, {"clock": "fault"}),
            ({"time": -6000}, {"clock": "fault"}),
            ({"time": nan}, {"clock": "fault"}),
            ({"version": "0.0.1"}, {"version": "note"}),
            ({"journal": {"state": "ok"}}, {"journal": "ok"}),
            ({"journal": {"state": "read-only", "reason": "full"}}, {"journal": "fault"}),
        ):
            found = {each.name: each.result for each in _about(about | changed, 0.0)}
            self.assertEqual(found, {"clock": "ok", "version": "ok"} | wanted, changed)

    def test_advice(self) -> None:
        """A read-only journal is to be reopened, unless the broker does that by itself."""
        about = {"time": 0, "version": __version__, "implementation": ""}
        advice = {False: "fleximq req broker /journal/reopen", True: "the broker tries again by itself"}
        for retries, wanted in advice.items():
            journal = {"state": "read-only", "reason": "full", "retries": retries}
            [*_, check] = _about(about | {"journal": journal}, 0.0)
            self.assertIn(wanted, check.advice)
