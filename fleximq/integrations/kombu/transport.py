"""The transport of kombu: connects to the broker, and drives connections from kombu's event loop."""

from typing import Any

from amqp.exceptions import ConsumerCancelled, RecoverableConnectionError
from kombu.exceptions import ChannelError
from kombu.transport import base

from fleximq import __version__
from fleximq.client.errors import Answered, ConnectionLost
from fleximq.client.settings import KEEP_ALIVE, TIMEOUT, ClientSettings, Tls
from fleximq.errors import BrokerError
from fleximq.integrations.kombu.channel import Channel
from fleximq.integrations.kombu.client import KombuClient
from fleximq.integrations.kombu.connection import Connection
from fleximq.values.urls import addressesOf

#: Options that are settings of the client.
_OPTIONS = frozenset({"credentials", "name", "tls", "timeout", "keep_alive", "buffer", "prefetch"})


class Transport(base.Transport):
    """The transport. Options are those of ``broker_transport_options``: ``url`` for addresses that kombu's URLs cannot
    express, and the keyword arguments of :func:`fleximq.client.blocking.client.connect`.
    """

    default_port = 7890
    driver_type = driver_name = "fleximq"
    connection_errors = (ConnectionLost, RecoverableConnectionError, OSError)
    recoverable_connection_errors = connection_errors
    channel_errors = (ChannelError, Answered, BrokerError)
    recoverable_channel_errors = (ConsumerCancelled,)
    implements = base.Transport.implements.extend(
        asynchronous=True, exchange_type=frozenset(("direct", "topic", "fanout"))
    )

    def driver_version(self) -> str:
        """Return the version of FlexiMQ."""
        return __version__

    @property
    def default_connection_params(self) -> dict[str, Any]:
        """The port and the host of a URL without them."""
        return {"port": self.default_port, "hostname": "localhost"}

    def establish_connection(self) -> Connection:
        """Connect to the broker of kombu's URL; raises ConnectionLost, or JoinRefused with wrong credentials."""
        client = self.client
        options: dict[str, Any] = {
            name: value for name, value in (client.transport_options or {}).items() if name in _OPTIONS
        }
        url = (client.transport_options or {}).get("url")
        if url is None:
            scheme = "tls" if client.ssl else "tcp"
            url = f"{scheme}://{client.hostname or 'localhost'}:{client.port or self.default_port}"
        if isinstance(client.ssl, dict):
            files = client.ssl.get("ca_certs"), client.ssl.get("certfile"), client.ssl.get("keyfile")
            options.setdefault("tls", Tls(*files))
        password = client.password() if callable(client.password) else client.password
        if client.userid and password is not None:
            options.setdefault("credentials", {"type": "basic", "username": client.userid, "password": password})
        # Celery asks for a heartbeat of 120 seconds; a worker would wait for a silent broker for minutes.
        every = min(client.heartbeat or KEEP_ALIVE, KEEP_ALIVE)
        settings = {"timeout": client.connect_timeout or TIMEOUT, "keep_alive": every}
        inner = KombuClient(addressesOf(url), ClientSettings(**{**settings, **options, "reconnect": None}))
        return Connection(client, inner)

    def create_channel(self, connection: Connection) -> Channel:
        """Return a new channel."""
        return connection.channel()

    def close_connection(self, connection: Connection) -> None:
        """Close a connection in order."""
        connection.client = None
        connection.close()

    def _collect(self, connection: Connection | None) -> None:
        if connection is not None:
            connection.collect()

    def verify_connection(self, connection: Connection) -> bool:
        """Return whether it is connected."""
        return connection.connected

    def drain_events(self, connection: Connection, timeout: float | None = None, **options: Any) -> None:
        """See :meth:`Connection.drain`."""
        connection.drain(timeout)

    def register_with_event_loop(self, connection: Connection, loop: Any) -> None:
        """Have an event loop of kombu pass the deliveries."""
        for each in connection.descriptors():
            loop.add_reader(each, self.on_readable, connection, loop)

    def unregister_from_event_loop(self, connection: Connection, loop: Any) -> None:
        """Undo :meth:`register_with_event_loop`."""
        for each in connection.descriptors():
            loop.remove_reader(each)

    def on_readable(self, connection: Connection, loop: Any) -> None:
        """Pass the deliveries that there are."""
        connection.slept()
        if connection.passAvailable(0):
            loop.call_soon(self.on_readable, connection, loop)
