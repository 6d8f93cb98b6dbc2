"""How a broker runs in its process: alone, or as a node of a cluster.

:mod:`fleximq.services.compose` makes the same parts for both; a host makes those that differ, and holds their services.
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
from fleximq.services.process.wakeup import Wakeup
from fleximq.services.reload import Reload
from fleximq.services.web_site import ClusterState

if TYPE_CHECKING:
    from fleximq.journal.journal_folder import JournalFolder


@dataclass(frozen=True, slots=True)
class Inputs:
    """The means from which a broker is composed, see :func:`fleximq.services.compose.compose`."""

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


class Place(NamedTuple):
    """The service that holds a listener, and the factory of its open port, made from that of its endpoint with all
    layers; None for the latter.
    """

    parent: MultiService
    entrance: Callable[[IProtocolFactory], IProtocolFactory] | None = None


class Host(ABC):
    """Makes the parts of a broker that differ, and holds its services.

    ``turn`` is the turn of the reactor, at whose end all connections are written. ``served`` are the services of the
    broker, which run while it serves; :meth:`hold` makes it. ``state`` is that of a node, for its web pages. ``beat``
    calls its argument when the journal's thread has answered; None if that is not monitored.
    """

    turn: WriteTurn
    wakeup: Wakeup
    served: MultiService
    state: ClusterState | None = None
    beat: Callable[[Callable[[], None]], object] | None = None

    @abstractmethod
    def abortStart(self, sentence: str) -> NoReturn:
        """End the start with a sentence."""

    @abstractmethod
    def makeJournal(self, folder: "JournalFolder") -> BrokerJournal:
        """Return the journal on disk, whose folder is not open yet."""

    @abstractmethod
    def makeBroker(self, **parts: Any) -> Broker:
        """Return the broker with these parts."""

    @abstractmethod
    def hold(self, broker: Broker) -> None:
        """Make ``served``."""

    @abstractmethod
    def early(self, brokerService: MultiService) -> MultiService:
        """Return the parent of services about the process itself, and of listeners for HTTP only."""

    @abstractmethod
    def serve(self) -> MultiService:
        """Return the service of the whole, which runs ``served`` in its time."""

    @property
    @abstractmethod
    def owned(self) -> MultiService:
        """The service of programs and standard input; after :meth:`serve`."""

    @property
    @abstractmethod
    def listening(self) -> list[MultiService]:
        """The services that hold listeners, first that of the dialects' sockets."""

    @abstractmethod
    def placeOf(self, listen: Listen, limit: ConnectionLimit) -> Place:
        """Return the place of a listener of dialects; raises SettingError if there is none."""

    @abstractmethod
    def forwarded(self) -> int:
        """Return the number of clients that another node serves."""

    @abstractmethod
    def drainTimeout(self, seconds: float) -> float:
        """Return the seconds that connections have to end at the stop, which are so many by the settings."""


class SingleHost(Host):
    """A broker of its own."""

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
        # It stays open as long as the broker, so that health checks see the broker stop.
        return brokerService

    @property
    def listening(self) -> list[MultiService]:
        return [self.served]

    @property
    def owned(self) -> MultiService:
        return self.served

    def placeOf(self, listen: Listen, limit: ConnectionLimit) -> Place:
        return Place(self.served)

    def forwarded(self) -> int:
        return 0

    def drainTimeout(self, seconds: float) -> float:
        return seconds
