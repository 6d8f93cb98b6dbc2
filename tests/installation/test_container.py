"""The Dockerfile: each of its steps runs in a fresh Debian, since a test has no Docker."""

import json
import os
import re
import shutil
import signal
import subprocess
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from twisted.trial.unittest import SkipTest, SynchronousTestCase

from tests.conversations.test_proxied import freePort
from tests.installation.debian_root import PATIENCE, ROOT, DebianRoot
from tests.nightly import nightly

#: The settings of Prometheus and Grafana, and the alerts that the former loads.
CONTAINER, ALERTS = "docs/container", "docs/grafana/fleximq-alerts.yml"


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
        self.assertIn("(pure Python)", root.run("fleximq", "--version", user=said["USER"]))
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
    """compose.yaml, and the files that its containers get."""

    def setUp(self) -> None:
        """Read it."""
        if find_spec("yaml") is None:
            raise SkipTest("PyYAML is not installed")
        self.composition = parsed("compose.yaml")
        self.services = self.composition["services"]
        mounted = [volume.split(":") for service in self.services.values() for volume in service["volumes"]]
        #: Paths in the containers by their names in the repository.
        self.files = {source.removeprefix("./"): target for source, target, *_ in mounted if source.startswith("./")}
        self.volumes = {source: target for source, target, *_ in mounted if not source.startswith("./")}

    def test_files(self) -> None:
        """All files that containers get are there, and what they name in each other."""
        self.assertEqual([name for name in self.files if not (ROOT / name).is_file()], [])
        self.assertLessEqual({f"{CONTAINER}/{name}" for name in os.listdir(ROOT / CONTAINER)}, set(self.files))
        prometheus = parsed(f"{CONTAINER}/prometheus.yml")
        self.assertEqual([f"/etc/prometheus/{name}" for name in prometheus["rule_files"]], [self.files[ALERTS]])
        [scraped] = prometheus["scrape_configs"]
        self.assertEqual(scraped["static_configs"], [{"targets": [f"fleximq:{self.port('fleximq')}"]}])
        [source] = parsed(f"{CONTAINER}/datasources.yml")["datasources"]
        self.assertEqual(source["url"], f"http://prometheus:{self.port('prometheus')}")
        [provider] = parsed(f"{CONTAINER}/dashboards.yml")["providers"]
        self.assertEqual(f"{provider['options']['path']}/fleximq.json", self.files["docs/grafana/fleximq.json"])

    def test_prometheus(self) -> None:
        """Prometheus accepts its settings with the alerts beside them, as they are in the container."""
        promtool = shutil.which("promtool")
        if promtool is None:
            raise SkipTest("promtool is not installed; it is in the Debian package prometheus")
        folder = Path(self.mktemp())
        folder.mkdir()
        for name in (f"{CONTAINER}/prometheus.yml", ALERTS):
            shutil.copy(ROOT / name, folder / Path(self.files[name]).name)
        command = [promtool, "check", "config", str(folder / "prometheus.yml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_loopback(self) -> None:
        """While anonymous clients are admitted, no port is open to other machines."""
        self.assertIn("--allow-anonymous", self.services["fleximq"]["command"])
        published = [port for service in self.services.values() for port in service["ports"]]
        self.assertEqual([port for port in published if not port.startswith("127.0.0.1:")], [])
        self.assertEqual(self.port("fleximq"), dict(instructions())["EXPOSE"])

    def test_volume(self) -> None:
        """The journal is in the image's volume, which has a name."""
        volume = dict(instructions())["VOLUME"]
        self.assertEqual(self.volumes, {"journal": volume})
        self.assertEqual(list(self.composition["volumes"]), ["journal"])
        self.assertIn(volume, json.loads(dict(instructions())["ENTRYPOINT"]))

    def port(self, service: str) -> str:
        """Return the port that a container serves."""
        [published] = self.services[service]["ports"]
        return str(published).rpartition(":")[2]


def parsed(name: str) -> Any:
    """Return the values of a YAML file of the repository."""
    return import_module("yaml").safe_load((ROOT / name).read_text())
