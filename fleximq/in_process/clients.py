"""Makes the clients of one owner, an extension or the program that embeds the broker, and ends them with it.

A client gets its rights here; the broker checks them at each act, as those of clients that connect.
"""

from collections.abc import Callable
from functools import partial

from twisted.internet.interfaces import IReactorTime

from fleximq.broker.broker import Broker
from fleximq.client.settings import MESSAGEPACK, PREFETCH_BYTES, Codec
from fleximq.config.option_values import Sender
from fleximq.config.settings import Settings
from fleximq.dialects.fleximq.join import CLIENT_NAME_CHARACTERS
from fleximq.errors import JoinRejected, NotPermitted, SettingError
from fleximq.in_process.client import InProcessClient
from fleximq.in_process.peer import DIALECT, InProcessPeer
from fleximq.interfaces import IRights
from fleximq.rights import UNRESTRICTED, Action
from fleximq.security.principal import LISTENER, Principal, isName
from fleximq.security.rates.client_rates import Rates
from fleximq.values.printable import shortened


class InProcessClients:
    """The open clients of one owner.

    :param settings: returns the present settings.
    :param rightsOf: returns the rights of a principal under the present permissions.
    :param rates: the meters by which the rates of principals are limited.
    """

    def __init__(
        self,
        broker: Broker,
        clock: IReactorTime,
        settings: Callable[[], Settings],
        rightsOf: Callable[[Principal | None], IRights],
        rates: Rates,
        isBanned: Callable[[str], bool],
    ) -> None:
        self._broker = broker
        self._clock = clock
        self._settings = settings
        self._rightsOf = rightsOf
        self._rates = rates
        self._isBanned = isBanned
        self._open: set[InProcessClient] = set()

    def connect(
        self,
        rights: IRights | str,
        name: str | None = None,
        prefetch: int = PREFETCH_BYTES,
        codec: Codec | None = None,
    ) -> InProcessClient:
        """See :meth:`fleximq.interfaces.IExtensionContext.connect`."""
        principal = None
        if isinstance(rights, str):
            if not isName(rights):
                raise SettingError(f"rights is {rights!r}, but must be the name of a principal, or an IRights")
            # No credentials are needed, as for the principal of a listener: the operator chose the owner.
            principal = Principal(rights, scheme=LISTENER)
            if self._isBanned(rights):
                raise JoinRejected("this principal is banned")
            rights = self._rightsOf(principal)
        elif not IRights.providedBy(rights):
            raise SettingError(f"rights is {rights!r}, but must be the name of a principal, or an IRights")
        if name is not None and (not isinstance(name, str) or len(name) > CLIENT_NAME_CHARACTERS):
            raise SettingError(f"name must be a text of at most {CLIENT_NAME_CHARACTERS} characters")
        codec = codec or MESSAGEPACK
        if prefetch < 1:
            raise SettingError(f"prefetch is {prefetch}, but must be at least 1 byte")
        if name and rights not in UNRESTRICTED and not rights.may(Action.SERVE, name):
            raise NotPermitted(f"joining as {shortened(name)!r} is not permitted")
        broker, who = self._broker, None if principal is None else principal.name
        peer = InProcessPeer(broker, self._clock, prefetch, codec)
        conversation = None if principal is None else peer  # an IRights of the caller does not change with permissions
        joined = broker.join(
            DIALECT, peer, who, "in-process", rights=rights, identity=principal, conversation=conversation
        )
        if self._settings().sender is Sender.PRINCIPAL:
            joined.sender = who or ""
        peer.begin(joined)
        broker.rename(joined, name or "")
        meter = self._rates.meter(who, lambda: joined.rights.limits.rates)
        client = InProcessClient(peer, codec, lambda: self._settings().limits.message, meter)
        self._open.add(client)
        peer.ended.append(partial(self._open.discard, client))
        if meter is not None:
            peer.ended.append(meter.close)
        return client

    def closeAll(self) -> None:
        """End all clients that are open."""
        for client in tuple(self._open):
            client.close()
