"""Blocking clients in a process that forks."""

import multiprocessing
import threading
from collections.abc import Callable
from typing import Any

from twisted.trial.unittest import SynchronousTestCase

from fleximq.client.blipmq import blocking as blipmq
from fleximq.client.blocking import Client, connect
from fleximq.client.errors import ConnectionLost
from fleximq.client.minimq import blocking as minimq
from fleximq.client.settings import State
from fleximq.errors import SettingError
from tests.client.cases import Place
from tests.client.scripted import PATIENCE

_broker = Place()


def inChild(work: Callable[[], Any]) -> Any:
    """Return what a function returns in a process that is forked from this one."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    child = context.Process(target=lambda: theirs.send(work()), daemon=True)
    child.start()
    try:
        if not ours.poll(PATIENCE):
            raise AssertionError("the child says nothing")
        return ours.recv()
    finally:
        child.kill()
        child.join(PATIENCE)


class ForkTests(SynchronousTestCase):
    """A client that was open when the process forked."""

    def connected(self) -> Client:
        """Return a client."""
        client = connect(f"tcp://127.0.0.1:{_broker.broker.port()}")
        self.addCleanup(client.hang_up)
        return client

    def test_child(self) -> None:
        """In the child it is closed, and says why; another one can be made."""
        client = self.connected()
        subscription = client.subscribe("a")

        def work() -> tuple[State, list[str], str]:
            said = []
            for call in (client.flush, lambda: client.publish("a", 1), subscription.next):
                try:
                    call()
                except ConnectionLost as error:
                    said.append(str(error))
            client.close()
            return client.state, said, self.connected().ask("/broker/about")["name"]

        state, said, name = inChild(work)
        self.assertEqual((state, name), (State.CLOSED, "FlexiMQ"))
        self.assertEqual(
            [each.split(":")[0] for each in said], ["the connection belongs to the parent of this process"] * 3
        )

    def test_parent(self) -> None:
        """In the parent it goes on, also when the child has ended."""
        client = self.connected()
        subscription = client.subscribe("b")
        client.publish("b", 1)
        self.assertEqual(inChild(client.hang_up), None)
        client.publish("b", 2)
        client.flush()
        self.assertEqual([each and each.value for each in (subscription.next(), subscription.next())], [1, 2])
        self.assertIs(client.state, State.JOINED)

    def test_unflushed(self) -> None:
        """Closing it in the child reports no messages, those of other threads included: they are the parent's."""
        client = self.connected()
        thread = threading.Thread(target=client.publish, args=("c", 1))
        thread.start()
        thread.join()
        client.publish("c", 2)

        def work() -> str | None:
            try:
                client.close()
            except ConnectionLost as error:
                return str(error)
            return None

        self.assertEqual(inChild(work), None)
        client.flush()

    def test_busy(self) -> None:
        """It makes no difference that another thread was sending, and held its locks."""
        client = self.connected()
        with client._inner._connection._sending, client._inner._subscribing:
            self.assertEqual(inChild(client.hang_up), None)
        client.flush()


class QueueForkTests(SynchronousTestCase):
    """Clients of BlipMQ and MiniMQ that were open when the process forked."""

    def test_child(self) -> None:
        """In the child they are closed, and closing them and their iterators does nothing; the parent's go on."""
        url = f"tcp://127.0.0.1:{_broker.broker.port()}"
        blip, mini = blipmq.connect(url), minimq.connect(url)
        self.addCleanup(blip.hang_up)
        self.addCleanup(mini.hang_up)
        subscription, consumer = blip.subscribe("q"), mini.consumer("q")

        def work() -> list[State]:
            for each in (subscription, consumer, blip, mini):
                each.close()
            blip.hang_up()
            mini.hang_up()
            self.assertRaises(ConnectionLost, mini.produce, "q", "x")
            return [blip.state, mini.state]

        self.assertEqual(inChild(work), [State.CLOSED, State.CLOSED])
        mini.produce("q", "x")
        blip.flush()
        self.assertEqual([blip.state, mini.state], [State.JOINED, State.JOINED])

    def test_key(self) -> None:
        """A BlipMQ key that is no text in UTF-8 is refused."""
        self.assertRaises(SettingError, blipmq.connect, "tcp://127.0.0.1:1", key="\udcff")
