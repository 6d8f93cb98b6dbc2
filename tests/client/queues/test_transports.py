"""Both dialects in every form over TLS and UNIX sockets."""

import socket
from typing import ClassVar

from fleximq.client import reconnecting
from fleximq.client.errors import Untrusted
from fleximq.client.settings import Tls
from fleximq.errors import SettingError
from tests.broker_process import BrokerProcess
from tests.client.queues.forms import PLACE, SOON, QueueCase, everyForm
from tests.client.test_with_broker import Secure

_SECURE = Secure("--listen", "tls://127.0.0.1:0", "--tls-certificate", "{0.certificate}", "--tls-key", "{0.key}")


class _Ways(QueueCase):
    def exchange(self, url: str, tls: Tls | None = None) -> None:
        """Send something there and back."""
        client = self.connectedTo(url, tls=tls)
        if self.dialect == "blipmq":
            subscription = client.subscribe(self.topic)
            client.publish(self.topic, "hello")
            self.assertEqual(subscription.next(SOON).text, "hello")
        else:
            client.produce(self.topic, "hello")
            self.assertEqual(client.consumer(self.topic).next(SOON).content, "hello")
        client.close()

    def test_addresses(self) -> None:
        """Addresses that refuse or stay silent are passed over."""
        self.patch(reconnecting, "_ADDRESS_SECONDS", 0.1)
        self.network.isSilent = True
        closed = socket.create_server(("127.0.0.1", 0))
        ports = closed.getsockname()[1], PLACE.broker.port()
        closed.close()
        for _ in range(3):  # the order is random
            self.exchange(f"{self.network.url},127.0.0.1:{ports[0]},127.0.0.1:{ports[1]}")

    def test_tls(self) -> None:
        """Inside TLS, whose certificate has to be trusted."""
        url = f"tls://localhost:{_SECURE.broker.port()}"
        self.exchange(url, Tls(authority=str(_SECURE.made.certificate)))
        self.assertRaises(Untrusted, self.form.connect, url)
        self.assertRaises(SettingError, self.form.connect, "tcp://localhost:1", tls=Tls())

    def test_ipc(self) -> None:
        """Over a UNIX socket."""
        with BrokerProcess("--listen", "unix:door") as broker:
            self.exchange(f"ipc://{broker.folder / 'door'}")


class Blip(_Ways):
    """BlipMQ."""

    dialect: ClassVar[str] = "blipmq"


class Mini(_Ways):
    """MiniMQ."""

    dialect: ClassVar[str] = "minimq"


everyForm(globals(), Blip, Mini)
del Blip, Mini, QueueCase, _Ways
