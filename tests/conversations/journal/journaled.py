"""Tests with a journal in a folder of their own, over which brokers come and go."""

import os
import signal
from contextlib import ExitStack
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from tests.broker_process import BrokerProcess
from tests.conversations.clients import BlipClient, FlexiClient, IdentityClient, MiniClient, Stream


class JournalCase(SynchronousTestCase):
    """``journal`` is the folder; ``broker`` the one that runs, ``options`` what each is started with besides."""

    options: tuple[str, ...] = ("--durable", "d.#")

    def setUp(self) -> None:
        """Start with an empty journal."""
        self.journal = os.path.abspath(self.mktemp())
        self.broker: Any = None
        self._clients = ExitStack()
        self._brokers = ExitStack()
        self.addCleanup(self._end)
        self.start()

    def _end(self) -> None:
        self._clients.close()
        self._brokers.close()

    def start(self, *more: str, **process: Any) -> BrokerProcess:
        """Start a broker, which is stopped at the end of the test."""
        broker = BrokerProcess("--journal", self.journal, *self.options, *more, **process)
        self.broker = self._brokers.enter_context(broker)
        return broker

    def kill(self) -> None:
        """End the broker as a crash would."""
        self.broker.stop(signal.SIGKILL)
        self._clients.close()

    def restart(self, *more: str, **process: Any) -> BrokerProcess:
        """Kill the broker and start another one."""
        self.kill()
        return self.start(*more, **process)

    # -- clients -----------------------------------------------------------------------------------

    def flexi(self) -> FlexiClient:
        """Return a FlexiMQ client that has joined."""
        return self._clients.enter_context(FlexiClient(Stream(self.broker.address))).join()

    def blip(self, key: str = "dev-key") -> BlipClient:
        """Return a BlipMQ client that has authenticated."""
        return self._clients.enter_context(BlipClient(self.broker.address)).login(key)

    def mini(self) -> MiniClient:
        """Return a MiniMQ client."""
        return self._clients.enter_context(MiniClient(self.broker.address))

    def identity(self, *channels: str) -> IdentityClient:
        """Return an Identity client that has subscribed to these channels."""
        client = self._clients.enter_context(IdentityClient(self.broker.address))
        for channel in channels:
            client.subscribe(channel)
        return client

    # -- looks -------------------------------------------------------------------------------------

    def replay(self, topic: str, start: Any = "first") -> list[tuple[int, Any]]:
        """Return the offsets and values of what is kept of a topic, up to a mark that is published for that."""
        client = self.flexi()
        mark = f"mark {client.id}"
        client.publish(topic, mark)
        self.assertEqual(client.barrier(), [])
        client.tell("SUB", {"topic": topic, "from": start})
        found: list[tuple[int, Any]] = []
        while True:
            heard = client.hear()
            self.assertEqual(heard.kind, "PUB", heard)
            found.append((heard.header["offset"], heard.value))
            if heard.value == mark:
                return [each for each in found if not str(each[1]).startswith("mark ")]

    def about(self) -> dict[str, Any]:
        """Return how the journal is, as the broker tells it."""
        health: dict[str, Any] = self.flexi().ask("/broker/about")["journal"]
        return health
