"""Runs a broker that kills itself at a named step of an operation. It is the launcher of a BrokerProcess::

    python -m tests.cluster.nats.failpoints PYTHON TWISTD ARGUMENTS...

The environment variable ``FLEXIMQ_FAILPOINT`` names a file that may appear at any time, with an operation, a stage, and
how many commits are passed over, such as ``reject stored 1``. The next such operation arms it.
"""

import os
import runpy
import signal
import sys
from collections.abc import Callable, Mapping
from typing import Any

from twisted.internet import reactor

from fleximq.broker.broker import Broker
from fleximq.broker.consumers.cancellation import Cancellation
from fleximq.broker.key_values import changes
from fleximq.broker.schedules.due_messages import DuePublisher
from fleximq.broker.schedules.repeats import Repeats
from fleximq.broker.schedules.schedules import Schedules
from fleximq.cluster.nats.store import NatsCluster
from fleximq.cluster.stream_log import StreamWorker
from fleximq.cluster.stream_replica import StreamReplica
from fleximq.services.cluster_service import OwnersTurn

#: From the first instruction of an operation to its answer: before and after its function; a commit that is being
#: appended to the stream, is stored there, is in the copy too, is reported to the broker, and to clients.
STAGES = ("begun", "made", "sent", "stored", "copied", "told", "answered")
#: Seconds until an append has left the process; its outcome is not known here.
_LEFT = 0.002


def _settles(number: int, keyword: str) -> Callable[..., bool]:
    """Tell whether a call of ``Broker.settle`` has settlements of one kind."""
    return lambda *arguments, **more: bool(arguments[number] if len(arguments) > number else more.get(keyword))


#: The function of each operation, and the condition on its arguments.
OPERATIONS: Mapping[str, tuple[Any, str, Callable[..., bool]]] = {
    "acknowledge": (Broker, "settle", _settles(3, "acks")),
    "retry": (Broker, "settle", _settles(4, "retries")),
    "reject": (Broker, "settle", _settles(5, "rejects")),
    "schedule": (Broker, "addSchedules", lambda *arguments: True),
    "due": (DuePublisher, "publish", lambda *arguments: True),
    "recur": (Repeats, "_publish", lambda *arguments: True),
    "cancel": (Cancellation, "begin", lambda *arguments: True),
    "unschedule": (Schedules, "cancel", lambda *arguments: True),
    "put": (changes._Put, "make", lambda *arguments: True),
    "add": (changes._Add, "make", lambda *arguments: True),
    "delete": (changes._Delete, "make", lambda *arguments: True),
}


class Failpoint:
    """The armed operation and stage. ``isMine``: the commit that is carried out is the one at which to die; ``isTold``:
    its result was reported.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._stage = ""
        self._commits = 0
        self.isMine = self.isTold = False

    def reached(self, stage: str, isMine: bool = True) -> None:
        """Die if this is the stage of the armed operation."""
        if self._stage == stage and isMine:
            os.kill(os.getpid(), signal.SIGKILL)

    def begin(self, operation: str) -> None:
        """Learn whether an operation that begins is the wanted one, and die at its first stage."""
        if not self._stage and os.path.exists(self._path):
            with open(self._path) as file:
                wanted, stage, commits = file.read().split()
            if wanted == operation:
                self._stage, self._commits = stage, int(commits) + 1
                self.reached("begun")

    def commits(self) -> bool:
        """Tell whether a commit that is handed over is the one at which to die."""
        self._commits -= 1
        return self._commits == 0


def patch(failpoint: Failpoint) -> None:
    """Let the operations, and the stages of a commit, look at the failpoint."""
    for name, (owner, method, concerns) in OPERATIONS.items():
        setattr(owner, method, _operation(failpoint, name, getattr(owner, method), concerns))
    hand, append, write, flush = StreamWorker.hand, NatsCluster.append, StreamReplica.write, OwnersTurn.flush

    def handing(self: StreamWorker, work: Callable[[], object], done: Callable[[], None]) -> None:
        if not failpoint.commits():
            hand(self, work, done)
            return

        def working() -> object:
            failpoint.isMine = True
            return work()

        def told() -> None:
            done()
            failpoint.isTold = True
            failpoint.reached("told")

        hand(self, working, told)

    async def appending(self: NatsCluster, *arguments: Any) -> int:
        if failpoint.isMine:
            reactor.callLater(_LEFT, failpoint.reached, "sent")
        return await append(self, *arguments)

    def writing(self: StreamReplica, *arguments: Any) -> Any:
        failpoint.reached("stored", failpoint.isMine)
        found = write(self, *arguments)
        failpoint.reached("copied", failpoint.isMine)
        return found

    def flushing(self: OwnersTurn) -> None:
        flush(self)
        failpoint.reached("answered", failpoint.isTold)

    for owner, name, function in (
        (StreamWorker, "hand", handing), (NatsCluster, "append", appending), (StreamReplica, "write", writing),
        (OwnersTurn, "flush", flushing),
    ):  # fmt: skip
        setattr(owner, name, function)


def _operation(
    failpoint: Failpoint, name: str, function: Callable[..., Any], concerns: Callable[..., bool]
) -> Callable[..., Any]:
    def operate(*arguments: Any, **more: Any) -> Any:
        if not concerns(*arguments, **more):
            return function(*arguments, **more)
        failpoint.begin(name)
        found = function(*arguments, **more)
        failpoint.reached("made")
        return found

    return operate


if __name__ == "__main__":
    patch(Failpoint(os.environ["FLEXIMQ_FAILPOINT"]))
    del sys.argv[:2]
    runpy.run_path(sys.argv[0], run_name="__main__")
