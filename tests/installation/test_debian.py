"""The Debian package: built, installed, run, removed and purged in a fresh Debian."""

import re
import shlex
import shutil
import signal
import subprocess
import sys
from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.conversations.test_proxied import freePort
from tests.installation.debian_root import PATIENCE, DebianRoot, sourceDistribution
from tests.nightly import nightly

CONFIG = "etc/fleximq/fleximq.toml"
STATE = "var/lib/fleximq"
WANTED = "etc/systemd/system/multi-user.target.wants/fleximq.service"


@nightly
class PackageTests(SynchronousTestCase):
    """From the source distribution to a running broker, and back."""

    def test_lifecycle(self) -> None:
        """The service runs as its user with the conffile; an update changes no choice, a purge leaves only messages."""
        root = DebianRoot()
        root.run("apt-get", "update", "-qq")
        root.run("apt-get", "install", "-qq", "-y", "--no-install-recommends", "gcc", "libc6-dev", "python3-dev")
        shutil.unpack_archive(sourceDistribution(), root.path / "src")
        root.run("sh", "-c", "/src/*/debian/build /out")
        root.run("sh", "-c", "dpkg -i /out/*.deb")
        self.assertIn("(compiled)", root.run("fleximq", "--version"))
        self.assertIn(f"/{CONFIG}", root.run("dpkg-query", "-W", "-f=${Conffiles}", "fleximq"))
        self.assertEqual(root.run("stat", "-c", "%U %a", f"/{STATE}"), "fleximq 700\n")
        wanted = root.path / WANTED
        self.assertTrue(wanted.is_symlink())

        port, config = freePort(), root.path / CONFIG
        changed = config.read_text().replace('"tcp:7890", ', f'"tcp:{port}:interface=127.0.0.1", ')
        config.write_text(changed.replace('# durable = ["orders.#"]', 'durable = ["#"]'))
        unit = (root.path / "usr/lib/systemd/system/fleximq.service").read_text()
        self.verify(unit)
        self.serve(root, unit, port)

        wanted.unlink()  # as "systemctl disable" does
        root.run("sh", "-c", "dpkg -i /out/*.deb")
        self.assertIn(str(port), config.read_text())
        self.assertFalse(wanted.is_symlink())
        root.run("dpkg", "-r", "fleximq")
        self.assertFalse((root.path / "usr/bin/fleximq").exists())
        self.assertTrue(config.exists())
        self.assertIn(f"/{STATE} are left", root.run("dpkg", "-P", "fleximq"))
        self.assertFalse(config.exists())
        self.assertTrue(any((root.path / STATE).iterdir()))
        self.assertEqual(root.run("find", "/etc", "/var/lib/systemd", "-name", "fleximq*"), "")

    def verify(self, unit: str) -> None:
        """Ask systemd, where it is, whether the unit is in order; the program that it names is in the root only."""
        program = shutil.which("systemd-analyze")
        if program is not None:
            path = Path(self.mktemp()).absolute() / "fleximq.service"
            path.parent.mkdir()
            path.write_text(unit.replace("/opt/fleximq/bin/twistd", sys.executable))
            command = [program, "--no-pager", "verify", "--man=no", str(path)]
            said = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300)
            self.assertEqual((said.returncode, said.stdout), (0, ""))

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
