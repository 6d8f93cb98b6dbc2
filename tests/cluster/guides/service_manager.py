"""``systemctl`` on machines without systemd: it starts and stops the services of units, and starts them again.

Of a unit it reads ExecStart, User, Type, Restart, StateDirectory, WorkingDirectory and UMask; not what takes rights.
The output of a service goes to ``/run/NAME.log``.
"""

import os
import pwd
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

_PATIENCE = 120.0


def unit(name: str) -> dict[str, str]:
    """Return the last value of each key in the unit of a service, or in its template."""
    base, at, instance = name.partition("@")
    text = Path(f"/etc/systemd/system/{base}{at}.service").read_text().replace("\\\n", " ")
    lines = (line.partition("=") for line in text.splitlines() if not line.startswith("#"))
    return {key: value.replace("%i", instance).replace("%S", "/var/lib") for key, equals, value in lines if equals}


def serve(name: str) -> None:
    """Run a service until this process is told to end."""
    says = unit(name)
    user = pwd.getpwnam(says["User"])
    folder = Path("/var/lib", says["StateDirectory"])
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(int(says["StateDirectoryMode"], 8))
    os.chown(folder, user.pw_uid, user.pw_gid)
    os.chdir(says.get("WorkingDirectory", "/"))
    variables = {"PATH": "/usr/bin:/bin", "HOME": user.pw_dir}
    if says.get("Type") == "notify":
        variables["NOTIFY_SOCKET"] = f"/run/{name}.notify"
    running: list[subprocess.Popen[bytes]] = []
    isEnding = False

    def end(*_: object) -> None:
        nonlocal isEnding
        isEnding = True
        running[-1].terminate()

    signal.signal(signal.SIGTERM, end)
    with open(f"/run/{name}.log", "ab") as log:
        while not isEnding:
            process = subprocess.Popen(
                says["ExecStart"].split(), env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                user=user.pw_uid, group=user.pw_gid, extra_groups=[], umask=int(says["UMask"], 8),
            )  # fmt: skip
            running.append(process)
            process.wait()
            if not isEnding:
                time.sleep(float(says["RestartSec"]))


def start(name: str) -> None:
    """Start a service; return when it says that it is ready, if it is one that does."""
    place = Path(f"/run/{name}.notify")
    place.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(str(place))
        place.chmod(0o777)
        told.settimeout(1)
        words = [sys.executable, "-m", "tests.cluster.guides.service_manager", "serve", name]
        with open(f"/run/{name}.log", "ab") as log:
            serving = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        Path(f"/run/{name}.pid").write_text(str(serving.pid))
        end = time.monotonic() + _PATIENCE
        while unit(name).get("Type") == "notify" and b"READY=1" not in _told(told):
            if serving.poll() is not None or time.monotonic() > end:
                sys.exit(f"{name} is not ready; see /run/{name}.log")


def _told(manager: socket.socket) -> bytes:
    with suppress(TimeoutError):
        return manager.recv(4096)
    return b""


def stop(name: str) -> None:
    """End a service; return when it has ended."""
    place = Path(f"/run/{name}.pid")
    pid = int(place.read_text())
    place.unlink()
    os.kill(pid, signal.SIGTERM)
    with suppress(ProcessLookupError):
        while True:
            os.kill(pid, 0)
            time.sleep(0.05)


def main(words: list[str]) -> None:
    """Carry out a command of ``systemctl``."""
    command, *names = (word for word in words if word != "--now")
    if command == "serve":
        serve(*names)
    for name in names:
        if command in ("restart", "stop", "disable"):
            stop(name)
        if command in ("restart", "start", "enable"):
            start(name)


if __name__ == "__main__":
    main(sys.argv[1:])
