"""A worker by HTTP at a broker that restarts."""

import json
import os
from http.client import HTTPConnection
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess


def post(broker: BrokerProcess, path: str, value: Any = None) -> Any:
    """Return the answer to a request on a connection of its own."""
    connection = HTTPConnection(*broker.address, timeout=60)
    try:
        body = None if value is None else json.dumps(value)
        connection.request("POST", path, body, {} if body is None else {"Content-Type": "application/json"})
        return json.loads(connection.getresponse().read())
    finally:
        connection.close()


class HttpWorkerTests(SynchronousTestCase):
    """Jobs that are only on disk, and tags from before a restart."""

    def test_aRestart(self) -> None:
        """A take that does not wait gets a job that must be read first; the former tag settles nothing."""
        options = ("--journal", os.path.abspath(self.mktemp()))
        with BrokerProcess(*options) as broker:
            for number in range(3):
                post(broker, "/queues/mails", number)
            [old] = post(broker, "/queues/mails/take")["jobs"]
        with BrokerProcess(*options) as broker:
            jobs = post(broker, "/queues/mails/take?most=9")["jobs"]  # the one that is in memory
            jobs += post(broker, "/queues/mails/take?most=9")["jobs"]
            self.assertEqual([job["value"] for job in jobs], [0, 1, 2])
            settled = post(broker, "/queues/mails/settle", {"ack": [old["tag"], *(job["tag"] for job in jobs)]})
            self.assertEqual(settled, {"unsettled": [old["tag"]]})
        with BrokerProcess(*options) as broker:
            self.assertEqual(post(broker, "/queues/mails/take"), {"jobs": []})
