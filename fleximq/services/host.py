"""The parts that differ between a single broker and a node of a cluster.

:mod:`fleximq.services.compose` makes the parts that both have. :class:`SingleHost` and
:class:`fleximq.services.cluster_service.ClusterNode` make the others, and the services that start and stop them.
"""

import signal
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from twisted.application.service import MultiService
from twisted.internet.interfaces import IProtocolFactory

from fleximq.broker.broker import Broker
from fleximq.config.settings import Settings
from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.registry import Registry
from fleximq.endpoints.listen import Listen
from fleximq.journal.broker_journal import BrokerJournal
from fleximq.services.journal_service import JournalService, restore
from fleximq.services.network.connection_limit import ConnectionLimit
from fleximq.services.network.node_listener import BuildDelegate
from fleximq.services.process.wakeup import Wakeup
from fleximq.services.reload import Reload
from fleximq.services.web_site import ClusterState

if TYPE_CHECKING:
    from fleximq.journal.journal_folder import JournalFolder


@dataclass(frozen=True, slots=True)
class Inputs:
    """The arguments of :func:`fleximq.services.compose.compose`, with their defaults filled in."""

    reactor: Any
    settings: Settings
    registry: Registry
    reload: Reload
    abortStart: Callable[[str], NoReturn]
    abortRun: Callable[[str, Any], None]
    failStop: Callable[[str], None]
    environment: Mapping[str, str]
    wall: Callable[[], float]
    ownsProcess: bool


class ListenerPlace(NamedTuple):
    """The place of a listener.

    :param parent: the service that starts and stops it.
    :param wrapPort: wraps the factory of its open port, outside all other layers such as TLS; None: no wrapper.
    """

    parent: MultiService
    wrapPort: Callable[[IProtocolFactory], IProtocolFactory] | None = None


class Host(ABC):
    """Makes the parts of a broker that differ between a single broker and a node of a cluster.

    ``compose`` calls :meth:`makeJournal` (if the journal is on disk), :meth:`makeBroker`, :meth:`hold`, :meth:`early`
    and :meth:`serve` once each, in this order. ``turn`` writes all connections at the end of a turn of the reactor.
    ``wakeup`` calls functions of other threads in the reactor's. ``served`` is the parent of the services that run
    while the broker serves clients; :meth:`hold` makes it. ``state`` is the node's state for its web pages, None
    without a cluster. ``beat`` calls its argument when the journal's thread has answered; None if it is not monitored.
    """

    turn: WriteTurn
    wakeup: Wakeup
    served: MultiService
    state: ClusterState | None = None
    beat: Callable[[Callable[[], None]], object] | None = None

    @abstractmethod
    def abortStart(self, sentence: str) -> NoReturn:
        """Report in a sentence why the broker cannot start, and raise or end the process."""

    @abstractmethod
    def makeJournal(self, folder: "JournalFolder") -> BrokerJournal:
        """Return the broker's journal; its service opens the folder when it starts."""

    @abstractmethod
    def makeBroker(self, **parts: Any) -> Broker:
        """Return the broker made with these arguments of :class:`~fleximq.broker.broker.Broker`."""

    @abstractmethod
    def hold(self, broker: Broker) -> None:
        """Make ``served``, the parent of the services of this broker."""

    @abstractmethod
    def early(self, brokerService: MultiService) -> MultiService:
        """Return the parent of services that must run even while the broker does not serve clients: those that watch
        the process, and listeners for HTTP only.
        """

    @abstractmethod
    def serve(self) -> MultiService:
        """Return the service that contains all others, and starts ``served`` when this broker may serve clients."""

    @property
    @abstractmethod
    def owned(self) -> MultiService:
        """The parent of spawned programs and of the client at standard input; call it after :meth:`serve`."""

    @property
    @abstractmethod
    def listening(self) -> list[MultiService]:
        """The parents of listeners; the first is that of the listeners for dialects."""

    @abstractmethod
    def placeOf(self, listen: Listen, limit: ConnectionLimit) -> ListenerPlace:
        """Return the place of a listener for dialects; raises SettingError if this host does not serve it.

        :param limit: the limit of connections of all listeners.
        """

    @abstractmethod
    def forwarded(self) -> int:
        """Return the number of connections that this host forwards to another node."""

    @abstractmethod
    def acceptDelegates(self, builder: Callable[[], BuildDelegate]) -> None:
        """Serve clients of other nodes of a mesh that need the journal; without a mesh there are none.

        :param builder: returns the function that builds the protocols of their connections.
        """

    @abstractmethod
    def drainTimeout(self, seconds: float) -> float:
        """Return the seconds in which connections must end at the stop; ``seconds`` are those of the settings."""


class SingleHost(Host):
    """The host of a broker that is not a node of a cluster."""

    def __init__(self, inputs: Inputs) -> None:
        self.turn = WriteTurn(inputs.reactor)
        self.wakeup = Wakeup(inputs.reactor)
        self._inputs = inputs
        self._stored: tuple[JournalFolder, BrokerJournal] | None = None

    def abortStart(self, sentence: str) -> NoReturn:
        self._inputs.abortStart(sentence)

    def makeJournal(self, folder: "JournalFolder") -> BrokerJournal:
        self._stored = folder, BrokerJournal()
        return self._stored[1]

    def makeBroker(self, **parts: Any) -> Broker:
        return Broker(**parts)

    def hold(self, broker: Broker) -> None:
        if self._stored is None:
            self.served = MultiService()
            return
        folder, journal = self._stored
        self.served = service = JournalService(
            self._inputs.reactor,
            folder,
            journal,
            broker.checkpointer,
            partial(restore, broker),
            self.abortStart,
            self.wakeup,
            self._inputs.failStop,
            signal.signal if self._inputs.ownsProcess else None,
        )
        self.beat = service.beat

    def serve(self) -> MultiService:
        return self.served

    def early(self, brokerService: MultiService) -> MultiService:
        # They run as long as the broker, so that health checks see it stop.
        return brokerService

    @property
    def listening(self) -> list[MultiService]:
        return [self.served]

    @property
    def owned(self) -> MultiService:
        return self.served

    def placeOf(self, listen: Listen, limit: ConnectionLimit) -> ListenerPlace:
        return ListenerPlace(self.served)

    def forwarded(self) -> int:
        return 0

    def acceptDelegates(self, builder: Callable[[], BuildDelegate]) -> None:
        pass

    def drainTimeout(self, seconds: float) -> float:
        return seconds
