"""Which factory stands behind a listener: what it serves, and to whom. docs/dialects.rst, "One port"."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from twisted.internet.interfaces import IProtocolFactory, IReactorTime

from fleximq.dialects.http_door import HttpDoorFactory
from fleximq.dialects.origins import Origins
from fleximq.dialects.sniffing import SniffingFactory
from fleximq.endpoints.listen import DIALECTS, Listen
from fleximq.security.protection import Protection
from fleximq.web.welcome import WelcomeSite


@dataclass(frozen=True, slots=True)
class Entrance:
    """Makes the factories of listeners.

    ``streams`` and ``webSockets`` hold the dialects' factories by name; ``deadline`` is in seconds; ``counted`` is
    told of every connection that is turned away.
    """

    reactor: IReactorTime
    streams: Mapping[str, IProtocolFactory]
    webSockets: Mapping[str, IProtocolFactory]
    protection: Protection
    origins: Origins
    deadline: float
    counted: Callable[[str, int], object]

    def factoryFor(self, listen: Listen) -> IProtocolFactory:
        """Return what serves the connections of a listener: its one dialect, or all, told apart by first bytes."""
        dialect = listen.dialect
        if dialect is not None and dialect in self.streams and dialect not in self.webSockets:
            return self.streams[dialect]
        streams = {name: each for name, each in self.streams.items() if dialect in (None, name)}
        door = self._door(dialect)
        return SniffingFactory(streams, door, self.reactor, self.deadline, self.counted) if streams else door

    def _door(self, dialect: str | None) -> HttpDoorFactory:
        webSockets = {name: each for name, each in self.webSockets.items() if dialect in (None, name)}
        site = WelcomeSite(self.reactor, DIALECTS if dialect is None else (dialect,))
        return HttpDoorFactory(
            webSockets, site, self.protection, self.origins, self.reactor, self.deadline, self.counted
        )
