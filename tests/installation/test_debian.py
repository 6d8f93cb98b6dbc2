"""The Debian package: built, installed, run, removed and purged in a fresh Debian."""

import re
import shlex
import signal
import subprocess

from twisted.trial.unittest import SynchronousTestCase

from tests.conversations.test_proxied import freePort
from tests.installation.debian_root import PATIENCE, DebianRoot
from tests.nightly import nightly

SOURCES = "debian docs/systemd fleximq pyproject.toml pyspark_fleximq.py setup.cfg setup.py twisted README.rst LICENSE"
CONFIG = "etc/fleximq/fleximq.toml"
STATE = "var/lib/fleximq"


@nightly
class PackageTests(SynchronousTestCase):
    """From the sources to a running broker, and back."""

    def test_lifecycle(self) -> None:
        """The service runs as its user with the conffile, which survives updates; a purge leaves only messages."""
        root = DebianRoot()
        root.copy({name: f"/src/{name}" for name in SOURCES.split()})
        root.run("/src/debian/build", "/out")
        root.run("sh", "-c", "dpkg -i /out/*.deb")
        self.assertIn("pure Python", root.run("fleximq", "--version"))
        self.assertIn(f"/{CONFIG}", root.run("dpkg-query", "-W", "-f=${Conffiles}", "fleximq"))
        self.assertEqual(root.run("stat", "-c", "%U %a", f"/{STATE}"), "fleximq 700\n")
        self.assertIn("fleximq.service", root.run("ls", "/etc/systemd/system/multi-user.target.wants"))

        port, config = freePort(), root.path / CONFIG
        changed = config.read_text().replace('"tcp:7890", ', f'"tcp:{port}:interface=127.0.0.1", ')
        config.write_text(changed.replace('# durable = ["orders.#"]', 'durable = ["#"]'))
        unit = (root.path / "lib/systemd/system/fleximq.service").read_text()
        self.serve(root, unit, port)

        root.run("sh", "-c", "dpkg -i /out/*.deb")
        self.assertIn(str(port), config.read_text())
        root.run("dpkg", "-r", "fleximq")
        self.assertFalse((root.path / "usr/bin/fleximq").exists())
        self.assertTrue(config.exists())
        self.assertIn(f"/{STATE} are left", root.run("dpkg", "-P", "fleximq"))
        self.assertFalse(config.exists())
        self.assertTrue(any((root.path / STATE).iterdir()))
        self.assertFalse(any((root.path / "etc/systemd/system/multi-user.target.wants").glob("fleximq*")))

    def serve(self, root: DebianRoot, unit: str, port: int) -> None:
        """Run the unit's command as its user, publish a message and end it."""
        user = re.findall(r"^User=(.*)$", unit, re.MULTILINE)
        self.assertEqual(user, ["fleximq"])
        self.assertNotIn("LoadCredential", unit)
        root.run("install", "-d", "-o", "fleximq", "/run/fleximq")
        [command] = re.findall(r"^ExecStart=(.*)$", unit, re.MULTILINE)
        root.workdir = f"/{STATE}"
        words = root.command(shlex.split(command), user[0])
        root.workdir = "/"
        broker = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert broker.stdout is not None
            for line in broker.stdout:
                if f"Listening on tcp:127.0.0.1:{port}" in line:
                    break
            self.assertIn("published 1", root.run("fleximq", "pub", "--url", f"tcp://127.0.0.1:{port}", "t", "1"))
        finally:
            broker.send_signal(signal.SIGTERM)
            rest = broker.communicate(timeout=PATIENCE)[0]
        self.assertEqual(broker.returncode, 0, rest)
