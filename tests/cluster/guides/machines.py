"""Machines in namespaces of Linux: each has an address on a bridge, and folders of its own for its files.

``/etc`` is a copy of this machine's; ``/root``, ``/opt``, ``/run`` and ``/var/lib`` are new. Nothing is left when the
process that made them ends, since all that runs in a machine is in its process namespace.
"""

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.nats.servers import MISSING, PROGRAM

ROOT = Path(__file__).parents[3]
#: All processes of a machine end with the one that made it.
_UNSHARE = (
    "setpriv",
    "--pdeathsig",
    "KILL",
    "unshare",
    "--net",
    "--mount",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
_FOLDERS = ("etc", "opt", "run", "var/lib", "root")
#: What all users of a machine may read, also where it is in the folder of root: the interpreter, and what it imports.
_READ = sorted({each for each in (sys.base_prefix, sys.prefix, str(ROOT)) if each.startswith("/root/")})
#: What the guides tell to install, as the environment of the tests has it.
_PROGRAMS = {
    "fleximq": f"{sys.executable} -m fleximq",
    "twistd": f"{sys.executable} {sysconfig.get_path('scripts')}/twistd",
    "nats-server": PROGRAM,
}
_TOOLS = {
    "systemctl": f"{sys.executable} -m tests.cluster.guides.service_manager",
    # scp -r FOLDER root@ADDRESS:
    "scp": 'sh -c \'cp -r "$2" "$MACHINES/${3#root@}"\' sh',
}

#: The last line of a command's output, before its exit code.
_DONE = "the command ended with "


_NEEDED = ("unshare", "setpriv", "nsenter", "ip", "useradd", "curl", "openssl")


def missing() -> str:
    """Return why there can be no machines here; "" if there can."""
    if MISSING:
        return MISSING
    if lacking := [
        each for each in ("unshare", "nsenter", "ip", "useradd", "curl", "openssl") if not shutil.which(each)
    ]:
        return f"needs {', '.join(lacking)}"
    script = "mount -t tmpfs none /root && ip link add name bridge type bridge && ip link add name one type veth"
    tried = subprocess.run([*_UNSHARE, "sh", "-c", script], capture_output=True)
    return "" if tried.returncode == 0 else "namespaces of the network and of mounts are not permitted here"


def _write(folder: Path, programs: Mapping[str, str | None]) -> None:
    folder.mkdir(parents=True)
    for name, command in programs.items():
        (folder / name).write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} PYTHONSAFEPATH=1 exec {command} "$@"\n')
        (folder / name).chmod(0o755)


class Machines:
    """The network, and the machines in it by name; :meth:`end` ends them all."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="fleximq-machines-"))
        _write(self.folder / "bin", _TOOLS)
        self._holders: list[subprocess.Popen[str]] = []
        self._switch = self._hold("switch", "ip link add bridge type bridge && ip link set bridge up && ")
        self._machines: dict[str, int] = {}
        self._shells: dict[str, subprocess.Popen[str]] = {}

    def _hold(self, name: str, script: str) -> int:
        """Start the first process of some namespaces; return its id."""
        words = [*_UNSHARE, "sh", "-c", f"{script} echo made && while :; do sleep 60; done"]
        holder = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, start_new_session=True)
        self._holders.append(holder)
        assert holder.stdout is not None
        assert holder.stdout.readline() == "made\n", name
        return int(Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text())

    def add(self, name: str, address: str) -> None:
        """Add a machine with an address of 10.0.0.0/24."""
        folder = self.folder / name
        shutil.copytree("/etc", folder / "etc", symlinks=True)
        for each in _FOLDERS[1:]:
            (folder / each).mkdir(parents=True)
        _write(folder / "opt" / "fleximq" / "bin", _PROGRAMS)
        (self.folder / f"{address}:").symlink_to(f"{name}/root")
        mounts = [f"mount --bind {folder}/{each} /{each}" for each in _FOLDERS[:-1]]
        for path in _READ:
            inside = f"{folder}{path}"
            Path(inside).mkdir(parents=True, exist_ok=True)
            mounts.append(f"mount --bind {path} {inside}")
        mounts += [f"mount --rbind {folder}/root /root", "ip link set lo up"]
        pid = self._machines[name] = self._hold(name, "".join(f"{each} && " for each in mounts))
        enter = ["nsenter", "-t", str(self._switch), "-n", "ip", "link"]
        for words in (
            [*enter, "add", name, "type", "veth", "peer", "name", "eth0", "netns", str(pid)],
            [*enter, "set", name, "master", "bridge", "up"],
            [*self._inside(name), "ip", "addr", "add", f"{address}/24", "dev", "eth0"],
            [*self._inside(name), "ip", "link", "set", "eth0", "up"],
        ):
            subprocess.run(words, check=True, capture_output=True)

    def _inside(self, name: str) -> list[str]:
        return ["nsenter", "-t", str(self._machines[name]), "-n", "-m", "-p"]

    def run(self, name: str, command: str) -> tuple[int, str]:
        """Run a command in the shell of root on a machine; return its exit code and what it prints."""
        shell = self._shells.get(name) or self._shells.setdefault(name, self._shell(name))
        assert shell.stdin is not None
        assert shell.stdout is not None
        if command.rstrip().endswith("&"):
            command = f"{command.rstrip()[:-1]} >>/run/background.log 2>&1 &"
        shell.stdin.write(f"{{ {command}\n}} </dev/null 2>&1; echo {_DONE}$?\n")
        shell.stdin.flush()
        printed = ""
        while (line := shell.stdout.readline()) and not line.startswith(_DONE):
            printed += line
        return int(line.removeprefix(_DONE) or -1), printed

    def _shell(self, name: str) -> "subprocess.Popen[str]":
        variables = {
            "PATH": f"{self.folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": "/root",
            "MACHINES": str(self.folder),
        }
        words = [*self._inside(name), "env", "-C", "/root", "sh"]
        return subprocess.Popen(words, env=variables, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def logs(self) -> str:
        """Return the last lines that the services of all machines have written."""
        found = sorted(self.folder.glob("*/run/*.log"))
        return "\n".join(f"--- {path}\n{path.read_text()[-3000:]}" for path in found)

    def end(self) -> None:
        """End all processes, and remove all files."""
        for holder in self._holders:
            os.killpg(holder.pid, signal.SIGKILL)
        for process in (*self._holders, *self._shells.values()):
            process.wait()
            for stream in filter(None, (process.stdin, process.stdout)):
                stream.close()
        shutil.rmtree(self.folder, ignore_errors=True)
