"""Facts of BlipMQ and MiniMQ clients alike: conversations with a broker, failing networks, restarts, transports."""

import random
import socket
import threading
import time
import warnings
from functools import partial
from pathlib import Path

from fleximq.client import reconnecting
from fleximq.client.backoff import Backoff
from fleximq.client.errors import ConnectionLost, TopicWarning, Untrusted
from fleximq.client.settings import State, Tls
from fleximq.errors import SettingError
from tests.broker_process import BrokerProcess
from tests.client.cases import SOON, Secure, inEveryForm
from tests.client.queues.cases import LATER, PLACE, REDELIVERY, BlipCase, MiniCase, QueueCase, inThreads
from tests.client.scripted import InThread

_SECURE = Secure("--listen", "tls://127.0.0.1:0", "--tls-certificate", "{0.certificate}", "--tls-key", "{0.key}")


class Conversations(QueueCase):
    """A client and a broker that works."""

    def test_doubtfulTopicIsUsedWithOneWarning(self) -> None:
        """A wildcard is an ordinary character here, and a level may be empty."""
        one = self.direct()
        for call, name, more in self.doubtful:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always", TopicWarning)
                getattr(one, call)(self.topic + name, *more)
            told = [str(each.message) for each in caught if each.category is TopicWarning]
            self.assertEqual(["empty level" in each or "an ordinary topic" in each for each in told], [True], call)

    def test_oneTextIsNotSeveralMessages(self) -> None:
        """It would be sent letter by letter."""
        one = self.direct()
        call = one.publish_many if self.dialect == "blipmq" else one.produce_many
        self.assertRaises(TypeError, call, self.topic, "text")

    def test_emptyQueueIsNoneAndALateMessageIsFound(self) -> None:
        """At once, or after the given time."""
        one = self.direct()
        reader = self.reader(one)
        self.assertIsNone(reader.next(0))
        begun = time.monotonic()
        self.assertIsNone(reader.next(0.1))
        self.assertGreaterEqual(time.monotonic() - begun, 0.1)
        reading = InThread(partial(self.texts, reader, 1))
        time.sleep(0.1)
        self.send(self.direct(), "late")
        self.assertEqual(reading.result(), ["late"])

    def test_newCallPollsAtOnce(self) -> None:
        """However long the pauses between polls are."""
        one = self.direct()
        reader = self.reader(one, idle=Backoff(first=10 * SOON, most=10 * SOON))
        self.assertIsNone(reader.next(0.01))
        self.send(one, "x")
        self.assertEqual(self.texts(reader, 1), ["x"])

    def test_manyMessagesArriveOnceInOrder(self) -> None:
        """Far more than are prefetched; all are acknowledged in the end."""
        one = self.direct()
        for prefetch in (1, 7):
            reader = self.reader(one, prefetch=prefetch)
            numbers = [str(n) for n in range(300)]
            self.send(one, *numbers)
            self.assertEqual(self.texts(reader, 300), numbers)
            self.assertIsNone(reader.next(0))
            self.confirm(one)
        time.sleep(LATER)
        self.assertIsNone(reader.next(0))

    def test_severalAreTakenTogether(self) -> None:
        """``next_many`` returns up to so many, and acknowledges them together."""
        one = self.direct()
        reader = self.reader(one, prefetch=64)
        numbers = [str(n) for n in range(100)]
        self.send(one, *numbers)
        got: list[str] = []
        while len(got) < 100:
            several = reader.next_many(30, SOON)
            self.assertTrue(1 <= len(several) <= 30)
            got += [self.text(each) for each in several]
        self.assertEqual(got, numbers)
        self.assertEqual(reader.next_many(30, 0), [])

    def test_lastMessageOfALoopLeftEarlyIsRepeated(self) -> None:
        """It is not acknowledged; all before it are."""
        for prefetch in (1, 8):
            one = self.direct()
            reader = self.reader(one, prefetch=prefetch)
            self.send(one, "a", "b", "c")
            for message in reader:
                if self.text(message) == "c":
                    break
            one.close()
            again = self.again(self.direct(), reader)
            self.assertEqual([self.texts(again, 1), again.next(0)], [["c"], None])

    def test_acknowledgedMessageIsNotRepeated(self) -> None:
        """Acknowledging it again has no effect."""
        one = self.direct()
        reader = self.reader(one)
        self.send(one, "a")
        message = reader.next(SOON)
        one.ack(message)
        if self.dialect == "blipmq":
            one.ack(message)
        one.close()
        self.assertIsNone(self.again(self.direct(), reader).next(0))

    def test_leftMessageIsRepeated(self) -> None:
        """After a while, and without those that were acknowledged early."""
        one = self.direct()
        reader = self.reader(one)
        self.send(one, "a", "b")
        reader.ack(reader.next(SOON))
        reader.leave(reader.next(SOON))
        self.assertIsNone(reader.next(0))
        self.assertEqual(self.texts(reader, 1), ["b"])

    def test_threadsShareAClient(self) -> None:
        """Messages of several threads all arrive."""
        one = self.direct()
        reader = self.reader(one)
        inThreads(*(partial(self.send, one, *(str(n) for n in range(k, 200, 5))) for k in range(5)))
        self.confirm(one)
        self.assertEqual(sorted(self.texts(reader, 200), key=int), [str(n) for n in range(200)])

    def test_closedClientEndsIterationsAndCalls(self) -> None:
        """Prefetched messages are not given any more."""
        one = self.direct()
        reader = self.reader(one)
        self.send(one, "a")
        self.confirm(one)
        one.close()
        one.close()
        self.assertEqual(list(reader), [])
        for call in (one.ping, partial(self.send, one, ""), partial(self.reader, one)):
            self.assertRaises(ConnectionLost, call)

    def test_closingEndsAWait(self) -> None:
        """By another thread or task."""
        one = self.direct()
        reader = self.reader(one)
        waiting = InThread(partial(reader.next, SOON))
        time.sleep(0.1)
        one.close()
        self.assertIsNone(waiting.result())

    def test_noServerOrAnotherDialectIsALostConnection(self) -> None:
        """Nothing listens, or a listener of the other dialect."""
        self.assertRaises(ConnectionLost, self.form.connect, "tcp://127.0.0.1:1")
        other = "minimq" if self.dialect == "blipmq" else "blipmq"
        with BrokerProcess("--listen", f"{other}+tcp:0:interface=127.0.0.1") as broker:
            self.assertRaises(ConnectionLost, self.form.connect, f"tcp://127.0.0.1:{broker.port()}", timeout=2.0)

    def test_otherSchemesAreWrongSettings(self) -> None:
        """So are a prefetch of nothing, and TLS without a URL for it."""
        for url in ("ws://localhost:1", "stdio://", "nonsense"):
            self.assertRaises(SettingError, self.form.connect, url)
        self.assertRaises(SettingError, self.form.connect, "tcp://localhost:1", tls=Tls())
        self.assertRaises(SettingError, self.reader, self.direct(), prefetch=0)

    def exchange(self, url: str, tls: Tls | None = None) -> None:
        """Send and receive a message."""
        client = self.connectedTo(url, tls=tls)
        reader = self.reader(client)
        self.send(client, "hello")
        self.assertEqual(self.texts(reader, 1), ["hello"])
        client.close()

    def test_addressThatRefusesOrIsSilentIsPassedOver(self) -> None:
        """The order of the addresses is random."""
        self.patch(reconnecting, "_ADDRESS_SECONDS", 0.1)
        self.patch(random, "sample", lambda urls, number: list(urls))  # the last one is given more time
        self.network.isSilent = True
        closed = socket.create_server(("127.0.0.1", 0))
        ports = closed.getsockname()[1], PLACE.broker.port()
        closed.close()
        self.exchange(f"{self.network.url},127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}")

    def test_tls(self) -> None:
        """The certificate must be trusted."""
        url = f"tls://localhost:{_SECURE.broker.port()}"
        self.exchange(url, Tls(authority=str(_SECURE.made.certificate)))
        self.assertRaises(Untrusted, self.form.connect, url)

    def test_ipc(self) -> None:
        """A UNIX socket."""
        with BrokerProcess("--listen", "unix:door") as broker:
            self.exchange(f"ipc://{broker.folder / 'door'}")


class Networks(QueueCase):
    """A network that fails."""

    def test_readerGoesOnAfterACut(self) -> None:
        """Without the acknowledged messages; the last one is acknowledged on the next connection."""
        one, other = self.connected(), self.direct()
        reader = self.reader(one)
        self.send(other, "a", "b", "c")
        self.confirm(other)
        self.assertEqual(self.texts(reader, 2), ["a", "b"])
        self.cut(one)
        self.send(other, "d")
        self.assertEqual(self.texts(reader, 2), ["c", "d"])
        self.assertIsNone(reader.next(0))
        one.close()
        time.sleep(LATER)
        self.assertIsNone(self.again(other, reader).next(0))

    def test_confirmedMessagesSurviveManyCuts(self) -> None:
        """Anywhere in the bytes; nothing hangs."""
        one, reader = self.connected(), self.reader(self.direct(), prefetch=50)
        confirmed: set[int] = set()
        for batch in range(12):
            self.network.cutAfter = random.randint(100, 6000)
            if batch % 3 == 0:
                self.network.cut()
            numbers = range(batch * 40, batch * 40 + 40)
            while True:
                try:
                    self.send(one, *map(str, numbers))
                    self.confirm(one)
                    break
                except ConnectionLost:
                    self.network.cutAfter = random.randint(5000, 9000)
            confirmed.update(numbers)
        self.assertEqual(self.rest(reader), confirmed)

    def test_readerGetsEverythingOverManyCuts(self) -> None:
        """Each message at least once."""
        one = self.connected()
        reader = self.reader(one, prefetch=10)
        self.send(self.direct(), *(str(n) for n in range(300)))
        self.network.cutAfter = 3000
        self.network.cut()
        got: set[str | None] = set()
        while len(got) < 300:
            got.update(self.texts(reader, 1))
        self.assertGreater(self.network.made, 2)

    def test_piecesThatArriveLateChangeNothing(self) -> None:
        """Of up to 40 bytes."""
        self.network.split, self.network.delay = 40, 0.0002
        one = self.connected()
        reader = self.reader(one, prefetch=20)
        wanted = [*("ü" * n for n in range(100)), "x" * 3000]
        self.send(one, *wanted)
        self.confirm(one)
        self.assertEqual(self.texts(reader, 101), wanted)

    def test_silentConnectionIsReplaced(self) -> None:
        """After three unanswered PINGs."""
        one = self.connected(keep_alive=0.1, timeout=5.0)
        self.network.isSilent = True
        self.until(lambda: State.AWAY in self.states)
        self.network.isSilent = False
        self.until(lambda: one.state is State.JOINED)

    def test_clientGivesUpAfterItsAttempts(self) -> None:
        """Waits and further calls fail."""
        one = self.connected(reconnect=Backoff(first=0.01, most=0.01, attempts=3))
        reader = self.reader(one)
        waiting = InThread(reader.next)
        time.sleep(0.1)
        self.network.isDown = True
        self.network.cut()
        self.assertRaises(ConnectionLost, waiting.result)
        self.until(lambda: self.states == [State.JOINED, State.AWAY, State.CLOSED])
        for call in (partial(self.send, one, ""), one.ping, reader.next):
            self.assertRaises(ConnectionLost, call)


class Restarts(QueueCase):
    """A broker with a journal that is killed and started again."""

    def setUp(self) -> None:
        """Start it behind the network."""
        super().setUp()
        self.journal = str(Path(self.mktemp()).absolute())
        self.begin()

    def begin(self) -> None:
        """Start a broker, and lead the network to it."""
        arguments = ("--journal", self.journal, "--durable", "#", "--redelivery", str(REDELIVERY))
        self.broker = BrokerProcess(*arguments).__enter__()
        self.addCleanup(self.broker.stop)
        self.network.target = self.broker.address

    def restart(self) -> None:
        """Kill the broker, and start another one."""
        self.broker.stop(9)
        self.begin()

    def test_readerGoesOnAfterARestart(self) -> None:
        """Without the acknowledged messages."""
        one = self.connected()
        reader = self.reader(one)
        self.send(one, "a", "b", "c")
        self.confirm(one)
        self.assertEqual(self.texts(reader, 2), ["a", "b"])
        self.confirm(one)
        self.duringReconnect(one, self.restart)
        self.send(one, "d")
        self.confirm(one)
        self.assertEqual(self.texts(reader, 2), ["c", "d"])

    def test_confirmedMessagesSurviveAKill(self) -> None:
        """In the middle of sending."""
        one = self.connected()
        reader = self.reader(one, prefetch=50)
        confirmed: set[int] = set()
        for batch in range(3):
            numbers = range(batch * 1000, batch * 1000 + 1000)
            killing = [threading.Thread(target=self.restart)] if batch == 1 else []
            for each in killing:
                each.start()
            while True:
                try:
                    self.send(one, *map(str, numbers))
                    self.confirm(one)
                    break
                except ConnectionLost:
                    continue
            for each in killing:
                each.join()
            confirmed.update(numbers)
        self.assertEqual(self.rest(reader, LATER), confirmed)


_FACTS = Conversations, Networks, Restarts
for _dialect in (BlipCase, MiniCase):
    _kinds = [type(each.__name__, (each, _dialect), {"__doc__": each.__doc__}) for each in _FACTS]
    inEveryForm(globals(), *_kinds, dialect=[_dialect.dialect])
del Conversations, Networks, Restarts, QueueCase, BlipCase, MiniCase, _dialect
