"""A broker that ends with its test."""

from pathlib import Path

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess


def startBroker(
    test: SynchronousTestCase, journal: str | Path | None = None, *options: str, port: int = 0
) -> BrokerProcess:
    """Start a broker for a test, with a journal of all topics unless there is no folder for it.

    ``port`` is that of a broker that is started again; 0: the system chooses.
    """
    words = () if journal is None else ("--journal", str(journal), "--durable", "#")
    broker = BrokerProcess("--listen", f"tcp:{port}:interface=127.0.0.1", *words, *options)
    test.addCleanup(broker.stop)
    return broker.__enter__()
