"""A network of namespaces that can be cut, and processes in it that are started again when they end.

It needs the rights to make namespaces (:func:`missing`), and leaves nothing outside of them. A cut drops packets in
silence: the sender's neighbour table gets an address that no interface has.
"""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from tests.cluster.nats.servers import MISSING

HOSTS = ("a", "b", "c")
#: A further machine, whose broker runs for a while only.
FURTHER = "d"
NOWHERE = "02:00:00:00:00:01"


def missing() -> str:
    """Return why the campaign cannot run here; "" if it can."""
    if MISSING:
        return MISSING
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "needs unshare and ip"
    tried = subprocess.run(
        ["unshare", "--net", "--mount", "ip", "link", "add", "try", "type", "bridge"], capture_output=True
    )
    return "" if tried.returncode == 0 else "network namespaces are not permitted here"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


class Network:
    """A bridge with a namespace for each server ("na", "nb", "nc") and each broker ("ba", "bb", "bc", "bd")."""

    def __init__(self) -> None:
        os.makedirs("/run/netns", exist_ok=True)
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
        self.addresses = {f"n{host}": f"10.0.0.{10 + index}" for index, host in enumerate(HOSTS)}
        self.addresses |= {f"b{host}": f"10.0.0.{20 + index}" for index, host in enumerate((*HOSTS, FURTHER))}
        _ip("link", "set", "lo", "up")
        _ip("link", "add", "bridge", "type", "bridge")
        _ip("addr", "add", "10.0.0.1/24", "dev", "bridge")
        _ip("link", "set", "bridge", "up")
        for place, address in self.addresses.items():
            _ip("netns", "add", place)
            _ip("link", "add", place, "type", "veth", "peer", "name", "eth0", "netns", place)
            _ip("link", "set", place, "master", "bridge", "up")
            _ip("-n", place, "addr", "add", f"{address}/24", "dev", "eth0")
            for interface in ("lo", "eth0"):
                _ip("-n", place, "link", "set", interface, "up")

    def cut(self, senders: list[str], receivers: list[str]) -> None:
        """Drop all packets from some places to others, not those in the other direction."""
        for sender in senders:
            for receiver in receivers:
                address = self.addresses[receiver]
                _ip("-n", sender, "neigh", "replace", address, "lladdr", NOWHERE, "dev", "eth0", "nud", "permanent")

    def heal(self) -> None:
        """End all cuts."""
        for place in self.addresses:
            _ip("-n", place, "neigh", "flush", "dev", "eth0", "nud", "permanent")


class Process:
    """A program in a namespace, which is started again when it ends, as a service manager does it.

    ``said`` is called with each line of its output, which goes to a file as well.
    """

    def __init__(self, place: str, command: list[str], log: Path, said: Callable[[str], None]) -> None:
        self._place = place
        #: What is run, now or after the next end.
        self.command = command
        self._log = log
        self._said = said
        self.ends: Counter[int] = Counter()
        self.held = False
        self._ending = False
        self._start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _start(self) -> None:
        self._process = subprocess.Popen(
            ["ip", "netns", "exec", self._place, *self.command],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )

    def _run(self) -> None:
        with self._log.open("a") as log:
            while True:
                for line in self._process.stdout or ():
                    log.write(line)
                    log.flush()
                    self._said(line)
                self.ends[self._process.wait()] += 1
                while self.held:
                    time.sleep(0.05)
                if self._ending:
                    return
                time.sleep(0.5)
                self._start()

    def send(self, number: int) -> None:
        """Send a signal."""
        with suppress(ProcessLookupError):
            self._process.send_signal(number)

    def down(self, number: int = signal.SIGKILL) -> None:
        """End it, and wait for that; it stays down until ``held`` is taken back."""
        self.held = True
        process = self._process
        self.send(signal.SIGCONT)
        self.send(number)
        process.wait(60)

    def end(self, number: int = signal.SIGTERM) -> None:
        """End it for good."""
        self._ending, self.held = True, False
        self.send(signal.SIGCONT)
        self.send(number)
        self._thread.join(20)
        self.send(signal.SIGKILL)
        self._thread.join(5)
