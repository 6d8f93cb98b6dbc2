"""Cuts off the machine of a worker, in network namespaces, and prints when its job is given to another worker.

``python -m tests.conversations.cut_worker`` needs the rights to make namespaces (:func:`missing`), and leaves nothing
outside of them. The broker and the other worker are on one machine, the worker with the job on a second one. Its link
is set down, so that nothing ends the connection: neither a FIN nor a RST arrives. When the link is up again, the worker
ends its job. One line of JSON says what happened.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress

from fleximq.client.blocking import connect
from fleximq.client.errors import ClientError
from fleximq.client.jobs import Job
from tests.broker_process import BrokerProcess
from tests.conversations.clients import FlexiClient, Stream

BROKER, WORKER = "10.7.0.1", "10.7.0.2"
#: The namespace of the worker, and the ends of the link.
PLACE, NEAR, FAR = "worker", "near", "far"
#: Seconds between PINGs, the least that a broker has for a client.
KEEPALIVE = 5


def missing() -> str:
    """Return why there can be no namespaces here; "" if there can."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return "needs unshare and ip"
    link = ["ip", "link", "add", "one", "type", "veth", "peer", "name", "other"]
    tried = subprocess.run(["unshare", "--net", "--mount", *link], capture_output=True)
    return "" if tried.returncode == 0 else "network namespaces are not permitted here"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def _makeLink() -> None:
    os.makedirs("/run/netns", exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "none", "/run/netns"], check=True)
    _ip("netns", "add", PLACE)
    _ip("link", "add", NEAR, "type", "veth", "peer", "name", FAR, "netns", PLACE)
    _ip("addr", "add", f"{BROKER}/24", "dev", NEAR)
    _ip("-n", PLACE, "addr", "add", f"{WORKER}/24", "dev", FAR)
    for interface in ("lo", NEAR):
        _ip("link", "set", interface, "up")
    for interface in ("lo", FAR):
        _ip("-n", PLACE, "link", "set", interface, "up")


def _work(url: str) -> None:
    """Have the job until a line is read; print its attempt before that, and the error of the late acknowledgement."""
    with suppress(ClientError), connect(url, keep_alive=KEEPALIVE) as client, client.consume("jobs") as jobs:
        job: Job | None = jobs.next()
        assert job is not None
        print(job.attempt, flush=True)
        sys.stdin.readline()
        try:
            job.ack()
            client.flush()
            print("acknowledged", flush=True)
        except ClientError as error:
            print(type(error).__name__, flush=True)


def _cut() -> dict[str, object]:
    """Cut the worker off, and return what happened.

    ``pings`` is how often the broker sent a PING to the other worker until that got the job: the time in keep-alives,
    also on a slow machine. ``late`` is the answer to the acknowledgement of the first worker.
    """
    _makeLink()
    listen = ("--listen", f"tcp:0:interface={BROKER}", "--allow-anonymous", "--keepalive", str(KEEPALIVE))
    with BrokerProcess(*listen) as broker:
        address = BROKER, broker.port()
        command = [sys.executable, "-m", __spec__.name, "work", f"tcp://{BROKER}:{broker.port()}"]
        with (
            subprocess.Popen(
                ["ip", "netns", "exec", PLACE, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as worker,
            FlexiClient(Stream(address), answersPings=False) as other,
        ):
            assert worker.stdin is not None and worker.stdout is not None
            other.join().tell("PUB", {"topic": "jobs", "queue": True}, b"\x01")
            first = int(worker.stdout.readline())
            other.tell("SUB", {"topic": "jobs", "queue": True, "prefetch": 2})
            before = [each for each in other.barrier() if each.kind == "PUB"]
            _ip("-n", PLACE, "link", "set", FAR, "down")
            pings = 0
            while (heard := other.hear()).kind != "PUB":
                if heard.kind == "PING":
                    pings += 1
                    other.tell("PONG", {"keepalive": {"timestamp": heard.header["keepalive"]["timestamp"]}})
            delivery = heard.header["delivery"]
            settled = {"queue": "jobs", "ack": [delivery["tag"]]}
            other.tell("NOTIF", {"routing": [{"client_id": 1, "path": "/queue/settle"}]}, settled)
            _ip("-n", PLACE, "link", "set", FAR, "up")
            worker.stdin.write("\n")
            worker.stdin.flush()
            late = worker.stdout.readline().strip()
            again = [each for each in other.barrier() if each.kind == "PUB"]
            [queue] = [each for each in other.ask("/queue/list", {})["queues"] if each["queue"] == "jobs"]
            return {
                "attempts": [first, delivery["attempt"]],
                "pings": pings,
                "late": late,
                "others": len(before) + len(again),
                "left": queue["messages"] + queue["in_flight"],
            }


def main(arguments: Sequence[str]) -> int:
    """Run in namespaces of its own."""
    if not arguments:
        return subprocess.run(["unshare", "--net", "--mount", sys.executable, "-m", __spec__.name, "cut"]).returncode
    if arguments[0] == "work":
        _work(arguments[1])
    else:
        print(json.dumps(_cut()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
