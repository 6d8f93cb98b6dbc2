"""The Dockerfile: each of its steps runs in a fresh Debian, since a test has no Docker."""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.conversations.test_proxied import freePort
from tests.installation.debian_root import PATIENCE, ROOT, DebianRoot
from tests.nightly import nightly


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Dockerfile and their arguments."""
    lines = [line for line in (ROOT / "Dockerfile").read_text().splitlines() if line and not line.startswith("#")]
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in lines]


class Image:
    """Performs instructions; ``root`` is the file system of the last image."""

    root: DebianRoot

    def __init__(self) -> None:
        self._named: dict[str, DebianRoot] = {}
        self.said: dict[str, str] = {}

    def FROM(self, text: str) -> None:
        """Begin with a fresh Debian, whose Python takes the place of that in the image for Python."""
        self.root = DebianRoot()
        (self.root.path / "usr/bin/python").symlink_to("python3")
        if " AS " in text:
            self._named[text.partition(" AS ")[2]] = self.root

    def COPY(self, text: str) -> None:
        """Copy what .dockerignore leaves of the repository, or a folder of an earlier image."""
        *options, source, target = text.split()
        if options:
            other = self._named[options[0].removeprefix("--from=")]
            shutil.copytree(f"{other.path}{source}", f"{self.root.path}{target}", symlinks=True)
        else:
            kept = re.findall(r"^!(.+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
            self.root.copy({name: f"{target}/{name}" for name in kept})

    def RUN(self, text: str) -> None:
        """Run a command of the shell."""
        self.root.run("/bin/sh", "-c", text)

    def ENV(self, text: str) -> None:
        """Set a variable; $PATH stands for its value before."""
        name, _, value = text.partition("=")
        self.root.environment[name] = value.replace("$PATH", self.root.environment["PATH"])

    def WORKDIR(self, text: str) -> None:
        """Set the folder of all later commands."""
        self.root.workdir = text

    def perform(self, name: str, text: str) -> None:
        """Perform an instruction; those that only describe the image are collected."""
        getattr(self, name, lambda said: self.said.__setitem__(name, said))(text)


@nightly
class ImageTests(SynchronousTestCase):
    """The image made from all steps."""

    def test_runs(self) -> None:
        """The broker serves as its user, is healthy, writes to its volume, and ends in order after SIGTERM."""
        image = Image()
        for name, text in instructions():
            image.perform(name, text)
        said, root, port = image.said, image.root, freePort()
        command = root.command(
            [*json.loads(said["ENTRYPOINT"]), "--listen", f"tcp:{port}:interface=127.0.0.1", "--durable", "#"],
            said["USER"],
        )
        check = json.loads(said["HEALTHCHECK"].partition("CMD ")[2].replace("7890", str(port)))
        broker = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert broker.stdout is not None
            for line in broker.stdout:
                if "Listening on" in line:
                    break
            root.run(*check, user=said["USER"])
            root.run("fleximq", "pub", "--url", f"tcp://127.0.0.1:{port}", "t", "1", user=said["USER"])
            journal = Path(f"{root.path}{said['VOLUME']}")
            self.assertNotEqual(os.listdir(journal), [])
            self.assertEqual(journal.stat().st_mode & 0o777, 0o700)
            self.assertNotEqual(journal.stat().st_uid, 0)
        finally:
            broker.send_signal(signal.SIGTERM)
            rest = broker.communicate(timeout=PATIENCE)[0]
        self.assertEqual(broker.returncode, 0, rest)
        self.assertEqual(said["EXPOSE"], "7890")


class ComposeTests(SynchronousTestCase):
    """compose.yaml, without a program that reads it."""

    text = (ROOT / "compose.yaml").read_text()

    def test_files(self) -> None:
        """All files that containers get are there, and what they name in each other."""
        mounted = dict(re.findall(r"- \./(\S+?):(\S+):ro", self.text))
        self.assertEqual([name for name in mounted if not (ROOT / name).is_file()], [])
        folder = "docs/container"
        self.assertEqual({name for name in mounted if name.startswith(folder)}, _below(folder))
        prometheus = (ROOT / folder / "prometheus.yml").read_text()
        self.assertIn("/etc/prometheus/alerts.yml", mounted.values())
        self.assertIn("- alerts.yml", prometheus)
        self.assertIn('targets: ["fleximq:7890"]', prometheus)
        self.assertIn("url: http://prometheus:9090", (ROOT / folder / "datasources.yml").read_text())
        self.assertIn("path: /var/lib/grafana/dashboards", (ROOT / folder / "dashboards.yml").read_text())

    def test_loopback(self) -> None:
        """While anonymous clients are admitted, no port is open to other machines."""
        self.assertIn("--allow-anonymous", self.text)
        ports: list[Any] = re.findall(r'ports: \["(.*?)"\]', self.text)
        self.assertEqual([port.rpartition(":")[2] for port in ports], ["7890", "9090", "3000"])
        self.assertEqual([port for port in ports if not port.startswith("127.0.0.1:")], [])

    def test_volume(self) -> None:
        """The journal is the image's volume."""
        volume = dict(instructions())["VOLUME"]
        self.assertIn(f'volumes: ["journal:{volume}"]', self.text)
        self.assertIn(volume, shlex.split(dict(instructions())["ENTRYPOINT"].strip("[]").replace(",", " ")))


def _below(folder: str) -> set[str]:
    return {f"{folder}/{name}" for name in os.listdir(ROOT / folder)}
