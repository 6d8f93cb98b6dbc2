"""The campaign of :mod:`tests.conversations.journal.queue_loop` with workers that use nothing but HTTP.

::

    python -m tests.conversations.journal.http_queue_loop --kills 100

In addition, a worker settles jobs that it took from an earlier broker: all of them are reported as unsettled, and none
is settled by that.
"""

import json
import random
import sys
import threading
import time
from http.client import HTTPConnection, HTTPException
from typing import Any

from tests.conversations.clients import Ended
from tests.conversations.journal.queue_loop import JOBS, LATER, ORDERED, PREFETCH, RETRY, QueueLoop, main

#: Seconds of a lease, and for which a worker waits for jobs.
LEASE, WAIT = 5, 1


class HttpQueueLoop(QueueLoop):
    """``settled`` counts settlements, ``stale`` those of jobs that were taken from an earlier broker."""

    def __init__(self, folder: str) -> None:
        super().__init__(folder)
        self.settled = self.stale = 0
        self._old: dict[tuple[tuple[str, int], str], list[str]] = {}
        self._lock = threading.Lock()

    def serve(self, address: tuple[str, int], queue: str) -> None:
        connection = HTTPConnection(*address, timeout=300)
        try:
            self._settleOld(connection, queue, address)
            while self._work(connection, queue, address):
                if random.random() < 0.2:
                    connection.close()  # the next request makes another one
        except HTTPException as error:
            raise Ended(str(error)) from error
        finally:
            connection.close()

    def waitForJobs(self) -> None:
        """Wait as for other workers, and until some jobs are settled."""
        settled, deadline = self.settled, time.monotonic() + 300
        super().waitForJobs()
        while self.settled == settled and time.monotonic() < deadline:
            time.sleep(0.01)

    def check(self, address: tuple[str, int]) -> None:
        for queue in (JOBS, ORDERED, LATER):
            connection = HTTPConnection(*address, timeout=300)
            self._settleOld(connection, queue, address)
            connection.close()
        super().check(address)

    def _ask(self, connection: HTTPConnection, path: str, value: Any = None) -> Any:
        body = None if value is None else json.dumps(value)
        connection.request("POST", path, body, {"Content-Type": "application/json"} if body else {})
        response = connection.getresponse()
        answer = json.loads(response.read())
        if response.status == 503:  # it is stopping, or its journal is
            raise Ended(str(answer))
        if response.status != 200:
            self.jobs.fault(f"{path} was answered {response.status} {answer}")
        return answer

    def _settleOld(self, connection: HTTPConnection, queue: str, address: tuple[str, int]) -> None:
        """Acknowledge what was taken from brokers at other addresses, which are gone."""
        with self._lock:
            taken = [tags for (each, name), tags in self._old.items() if each != address and name == queue]
        old = [tag for tags in taken for tag in tags[-50:]]
        if old:
            unsettled = self._ask(connection, f"/queues/{queue}/settle", {"ack": old})["unsettled"]
            self.stale += len(old)
            if unsettled != old:
                self.jobs.fault(f"tags of an earlier broker settled something: {set(old) - set(unsettled)}")

    def _work(self, connection: HTTPConnection, queue: str, address: tuple[str, int]) -> bool:
        """Take jobs and settle them at random; return False to leave with unsettled ones."""
        jobs = self.jobs
        query = f"most={random.randint(1, PREFETCH)}&wait={WAIT}&lease={LEASE}"
        taken = self._ask(connection, f"/queues/{queue}/take?create=true&{query}")["jobs"]
        acks, retries, rejects, extends = [], [], [], []
        done: dict[str, str] = {}
        buried: dict[str, str] = {}
        for each in taken:
            name, tag = each["value"], each["tag"]
            jobs.delivered(name)
            act = random.random()
            if act < 0.2:
                extends.append([tag, 2 * LEASE])
            if act < 0.8:
                acks.append(tag)
            elif act < 0.95:
                retries.append([tag, random.randint(0, RETRY) / 1000])
                continue
            else:
                rejects.append([tag, f"no use for {name}"])
                buried[tag] = name
            done[tag] = name
        with self._lock:
            self._old.setdefault((address, queue), []).extend(each["tag"] for each in taken)
        if random.random() < 0.05:
            return False
        if not taken:
            return True
        jobs.settling.update(done.values())
        jobs.rejected.update(buried.values())
        if extends:
            self._ask(connection, f"/queues/{queue}/settle", {"extend": extends})
            jobs.extended += len(extends)
        settlement = {"ack": acks, "retry": retries, "reject": rejects}
        unsettled = {*self._ask(connection, f"/queues/{queue}/settle", settlement)["unsettled"]}
        self.settled += len(taken)
        jobs.finished.update(name for tag, name in done.items() if tag not in unsettled)
        jobs.buried.update(name for tag, name in buried.items() if tag not in unsettled)
        return True


def campaign(folder: str, kills: int) -> HttpQueueLoop:
    """Run a campaign with a journal in an empty folder, and return it."""
    loop = HttpQueueLoop(folder)
    loop.run(kills)
    return loop


if __name__ == "__main__":
    sys.exit(main("Kill a broker again and again while workers use HTTP, and compare its queues.", campaign))
