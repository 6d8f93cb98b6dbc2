"""Disturbs a broker with a journal at random while clients of four dialects use it, and checks what it promises.

::

    python -m tests.conversations.journal.fault_loop --minutes 30

The disturbances are steps of the wall clock (``time.time`` of the broker's process; the monotonic clock stays true), a
lack of file descriptors, a full disk (a file system in memory is mounted for the journal, so it needs root), a standard
output that is not read, and SIGHUP with changed settings; one or two at a time. No client may lose its connection or
wait for more than five seconds, and after each disturbance every client must be confirmed again without help. At the
end the broker stops, starts again, the queues are emptied, and every confirmed message must be there.
"""

import argparse
import contextlib
import fcntl
import os
import random
import resource
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fleximq
from tests.broker_process import BrokerProcess
from tests.conversations.clients import BlipClient, Ended, FlexiClient, IdentityClient, MiniClient, Nack, Stream
from tests.conversations.journal.crash_load import (
    MINI_TOPIC,
    Ledger,
    Load,
    Sent,
)
from tests.conversations.journal.crash_loop import CrashLoop, report

#: Seconds after which a client that waits has been left hanging.
HANG = 5.0
#: Seconds in which every client must be confirmed again after a disturbance.
RECOVERY = 20.0
#: Seconds that one disturbance lasts, and that a client rests after each burst.
LASTS, REST = (1.0, 4.0), 0.1
#: Steps of the wall clock in seconds.
STEPS = (7200, 100, -3600, -100, 0)
#: Run by the broker's interpreter as it starts: its wall clock adds the number of seconds in a file, mapped to memory.
CLOCK = """
import mmap, struct, time
with open({path!r}, "r+b") as file:
    step, true = mmap.mmap(file.fileno(), 8), time.time
time.time = lambda: true() + struct.unpack("<q", step[:8])[0]
"""
#: Bytes of the journal's file system, and of the pipe that takes the broker's standard output (F_SETPIPE_SZ).
DISK, PIPE, _SET_PIPE_SIZE = 600 << 20, 4096, 1031


def missing() -> str:
    """Return why it cannot run on this machine; empty if it can."""
    return "" if os.geteuid() == 0 else "only root can mount a file system"


class UnreadBroker(BrokerProcess):
    """A broker whose standard output is a small pipe that is read only while ``reads`` is set."""

    def __init__(self, *arguments: str, environment: dict[str, str]) -> None:
        super().__init__(*arguments, environment=environment, fresh=True)
        self.reads = threading.Event()
        self.reads.set()

    def _collect(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdout is not None
        fcntl.fcntl(process.stdout, _SET_PIPE_SIZE, PIPE)
        lines = iter(process.stdout.readline, b"")
        while self.reads.wait() and (line := next(lines, b"")):
            with self._news:
                # The text grows with each client that joins; its start, with the port, and its end are enough.
                self._printed = (
                    self._printed[:20_000] + self._printed[20_000:][-100_000:] + line.decode("utf-8", "replace")
                )
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()


class FaultLoad(Load):
    """Clients that take a refusal for an answer, and the end of a connection or a long wait for a fault."""

    def __init__(self, address: tuple[str, int], ledger: Ledger, subscription: int) -> None:
        super().__init__(address, ledger, subscription)
        self.ending = False
        self.confirmedAt: dict[str, float] = {}
        self.refusals: Counter[str] = Counter()
        self.longest = 0.0
        self._threads += [
            threading.Thread(target=self._work, args=(self._chat, "chat"), daemon=True),
            threading.Thread(target=self._joinAndLeave, daemon=True),
        ]

    @property
    def senders(self) -> tuple[str, ...]:
        """Those whose confirmations show that the broker serves."""
        return "flexi-0", "flexi-1", "blip-0", "blip-1", "mini-0", "chat"

    def stop(self) -> None:
        """Let all clients leave after their burst."""
        self.ending = True
        self.join()

    def _work(self, work: Callable[[str], None], sender: str) -> None:
        name = sender or work.__name__
        try:
            work(sender)
        except TimeoutError as error:
            calls = " > ".join(each.name for each in traceback.extract_tb(error.__traceback__))
            self._ledger.fault(f"{name} waited for more than {HANG:g} seconds at {time.monotonic():.1f} in {calls}")
        except (Ended, OSError) as error:
            self._ledger.fault(f"{name} lost its connection at {time.monotonic():.1f}: {error!r}")
        except Exception as error:
            self._ledger.fault(f"{name}: {error!r}")

    def _patient(self, client: Any) -> Any:
        client.socket.settimeout(HANG)
        return client

    def _bursts(self) -> Iterator[None]:
        while not self.ending:
            began = time.monotonic()
            yield
            self.longest = max(self.longest, time.monotonic() - began)
            time.sleep(REST)

    def _confirm(self, sender: str, messages: list[Sent]) -> None:
        self._ledger.confirm(messages)
        self.confirmedAt[sender] = time.monotonic()

    def _refused(self, answer: object) -> None:
        self.refusals[str(answer)[:90]] += 1

    def _barrier(self, client: Any, sender: str, messages: list[Sent]) -> None:
        errors = client.barrier()
        for error in errors[:1]:
            self._refused((error.header.get("status"), error.value) if isinstance(client, FlexiClient) else error)
        if not errors:
            self._confirm(sender, messages)

    def _produce(self, sender: str) -> None:
        with self._patient(MiniClient(self._address)) as client:
            for _ in self._bursts():
                messages = self._ledger.next(sender, 10)
                client.line(*(f"PRODUCE:{message.number}:::{MINI_TOPIC}:::{message}::::::" for message in messages))
                for message in messages:
                    answer = client.hear()
                    if answer == str(message.number):
                        self._confirm(sender, [message])
                    elif answer.startswith(("ERROR:500", "ERROR:503")):
                        self._refused(answer)
                    else:
                        self._ledger.fault(f"{message} was answered {answer}")

    def _consumeBlip(self, sender: str) -> None:
        with self._patient(BlipClient(self._address)) as client:
            client.login()
            for _ in self._bursts():
                for _ in range(3):
                    takeBlip(client, self._subscription, self._ledger, self._refused)

    def _consumeMini(self, sender: str) -> None:
        with self._patient(MiniClient(self._address)) as client:
            for _ in self._bursts():
                for _ in range(15):
                    takeMini(client, self._ledger, self._refused)

    def _chat(self, sender: str) -> None:
        with IdentityClient(socket.create_connection(self._address, timeout=HANG)) as client:
            client.subscribe("chat")
            for number, _ in enumerate(self._bursts()):
                client.say(f"PUBLISH:chat:{number}")
                heard = client.hear()
                if not heard.endswith(f":{number}"):
                    self._ledger.fault(f"the chat's message {number} was answered {heard}")
                self.confirmedAt[sender] = time.monotonic()

    def _joinAndLeave(self) -> None:
        """Join and leave, so that there is something to log; this may be refused, or wait while descriptors lack."""
        while not self.ending:
            with contextlib.suppress(OSError, Ended, AssertionError), FlexiClient(Stream(self._address)) as client:
                client.join()
            time.sleep(REST / 4)


def takeBlip(client: BlipClient, subscription: int, ledger: Ledger, refused: Callable[[object], None]) -> None:
    """Take some messages and acknowledge them; a refused barrier leaves their state open."""
    for correlation in range(40):
        client.frame(BlipClient.POLL, correlation, subscription.to_bytes(8, "big"))
    deliveries = [each for each in client.barrier() if not isinstance(each, Nack)]
    for delivery in deliveries:
        message = Sent.of(delivery.message.decode())
        ledger.deliver(message)
        if ledger.tags.setdefault(delivery.tag, message) != message:
            ledger.fault(f"tag {delivery.tag} was {ledger.tags[delivery.tag]} and is {message}")
        client.ack(delivery.tag, subscription)
    if errors := client.barrier():
        refused(errors[0])
    else:
        ledger.finished.update(Sent.of(delivery.message.decode()) for delivery in deliveries)


def takeMini(client: MiniClient, ledger: Ledger, refused: Callable[[object], None]) -> None:
    """Take a message from the queue and acknowledge it; a refused barrier leaves its state open."""
    answer = client.consume(MINI_TOPIC)
    if answer == "NO_MSG":
        return
    if answer.startswith("ERROR:"):
        refused(answer)
        return
    message = Sent.of(answer.split(":::")[2])
    ledger.deliver(message)
    stored = client.ack(answer.split(":::")[0]).ask("PING:")
    if stored == "PONG:":
        ledger.finished.add(message)
    else:
        refused(stored)


class FaultLoop(CrashLoop):
    """A journal on a small disk, the broker that uses it, and what disturbs both."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.disk, self.clock, self.settings = (self.folder / name for name in ("disk", "clock", "settings.toml"))
        super().__init__(str(self.disk / "journal"))
        self.arguments = (*self._arguments, "--config", str(self.settings), "--keepalive", "5")
        self.done: Counter[str] = Counter()
        self.history: list[str] = []
        self.log = ""
        self.exitCode = 0

    @property
    def environment(self) -> dict[str, str]:
        """The variables of the broker, with which its wall clock follows a file."""
        (self.folder / "sitecustomize.py").write_text(CLOCK.format(path=str(self.clock)))
        return {"PYTHONPATH": os.pathsep.join([str(self.folder), str(Path(fleximq.__file__).parents[1])])}

    def disturb(self, minutes: float) -> dict[str, Any]:
        """Disturb the broker for so long, then check everything; faults are in ``ledger.faults``."""
        self.disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(self.disk)], check=True)
        try:
            self._stepClock(0)
            self._changeSettings()
            broker = UnreadBroker(*self.arguments, environment=self.environment)
            with broker:
                self._lookBack(broker.address)
                self.load = FaultLoad(broker.address, self.ledger, self._subscription)
                self.load.start()
                until = time.monotonic() + 60 * minutes
                # A connection that is being made may be refused for want of descriptors, which is no fault.
                while len(self.load.confirmedAt) < len(self.load.senders) and time.monotonic() < until:
                    time.sleep(0.1)
                while time.monotonic() < until and not self.ledger.faults:
                    self._disturbOnce(broker)
                self.load.stop()
                broker.stop(signal.SIGTERM)
                self.exitCode, self.log = broker.wait(), broker.output
            self.ledger.round += 1
            if self.exitCode not in (0, -signal.SIGTERM):
                self.ledger.fault(f"the stop ended with {self.exitCode}")
            with BrokerProcess(*self.arguments) as restarted:
                self._lookBack(restarted.address)
                self._empty(restarted.address)
                self._readAll(restarted.address)
            return self._count()
        finally:
            subprocess.run(["umount", "-l", str(self.disk)], check=False)

    def _disturbOnce(self, broker: UnreadBroker) -> None:
        with contextlib.ExitStack() as stack:
            for name in random.sample(sorted(DISTURBANCES), random.choice((1, 1, 2))):
                stack.enter_context(DISTURBANCES[name](self, broker))
                self.done[name] += 1
                self.history.append(f"{time.monotonic():.1f} {name}")
            time.sleep(random.uniform(*LASTS))
            chosen = ", ".join(f"{name} {number}" for name, number in self.done.items())
        ended = time.monotonic()
        while late := [each for each in self.load.senders if self.load.confirmedAt.get(each, 0) < ended]:
            if time.monotonic() > ended + RECOVERY:
                self.ledger.fault(f"{late} were not confirmed for {RECOVERY:g} seconds; disturbances so far: {chosen}")
                return
            time.sleep(REST)

    def _stepClock(self, seconds: int) -> None:
        with self.clock.open("r+b" if self.clock.exists() else "wb") as file:
            file.write(struct.pack("<q", seconds))

    def _changeSettings(self) -> None:
        self.settings.write_text(f"max-clients = {random.randint(500, 900)}\n")

    @contextlib.contextmanager
    def clockStep(self, broker: UnreadBroker) -> Iterator[None]:
        """Set the wall clock to another time, where it stays."""
        self._stepClock(random.choice(STEPS))
        yield

    @contextlib.contextmanager
    def noDescriptors(self, broker: UnreadBroker) -> Iterator[None]:
        """Allow no more descriptors than are open now and a few, and connect until none is left."""
        before = resource.prlimit(broker.pid, resource.RLIMIT_NOFILE)
        used = len(os.listdir(f"/proc/{broker.pid}/fd"))
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, (used + random.randint(0, 8), before[1]))
        silent = []
        for _ in range(30):
            with contextlib.suppress(OSError):
                silent.append(socket.create_connection(broker.address, timeout=0.2))
        yield
        for each in silent:
            each.close()
        resource.prlimit(broker.pid, resource.RLIMIT_NOFILE, before)

    @contextlib.contextmanager
    def fullDisk(self, broker: UnreadBroker) -> Iterator[None]:
        """Fill the journal's file system."""
        filler = self.disk / "filler"
        with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(bytes(1 << 20))
        with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
            while True:
                file.write(bytes(1 << 12))
        yield
        filler.unlink()

    @contextlib.contextmanager
    def unreadOutput(self, broker: UnreadBroker) -> Iterator[None]:
        """Do not read the broker's log."""
        broker.reads.clear()
        yield
        broker.reads.set()

    @contextlib.contextmanager
    def reload(self, broker: UnreadBroker) -> Iterator[None]:
        """Send SIGHUP after a change of the settings."""
        self._changeSettings()
        os.kill(broker.pid, signal.SIGHUP)
        yield


Disturbance = Callable[[FaultLoop, UnreadBroker], contextlib.AbstractContextManager[None]]
DISTURBANCES: dict[str, Disturbance] = {
    "step of the clock": FaultLoop.clockStep,
    "no descriptors": FaultLoop.noDescriptors,
    "full disk": FaultLoop.fullDisk,
    "unread output": FaultLoop.unreadOutput,
    "SIGHUP": FaultLoop.reload,
}


def main() -> int:
    """Run as the command line says, and print the report; 1 if anything is lost or wrong."""
    parser = argparse.ArgumentParser(description="Disturb a broker, and check that it keeps its promises.")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=None)
    arguments = parser.parse_args()
    if why := missing():
        parser.error(why)
    random.seed(arguments.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        loop = FaultLoop(folder)
        counts = loop.disturb(arguments.minutes)
    print(loop.log[-6000:], *loop.history, sep="\n")
    print(report(0, counts, loop.ledger.faults, time.monotonic() - began))
    print(dict(loop.done), f"longest wait {loop.load.longest:.2f} s", *loop.load.refusals.most_common(), sep="\n")
    return 1 if loop.ledger.faults or any(count.lost or count.duplicated for count in counts.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
