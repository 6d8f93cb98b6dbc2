"""Which factory stands behind a listener: what it serves, and to whom. docs/dialects.rst, "One port"."""

from collections.abc import Callable
from dataclasses import dataclass

from twisted.internet.interfaces import IProtocolFactory, IReactorTime

from fleximq.dialects.connection.protocol_detection import SniffingFactory
from fleximq.dialects.http.origins import Origins
from fleximq.dialects.http.request_router import HttpDoorFactory
from fleximq.endpoints.listen import Listen
from fleximq.interfaces import IAdmission
from fleximq.services.network.spoken import Spoken
from fleximq.web.welcome_page import Way


@dataclass(frozen=True, slots=True)
class Entrance:
    """Makes the factory of a listener.

    ``admission`` says who may come, ``behindProxy`` the same of those for whom a proxy speaks. ``deadline`` is in
    seconds; ``counted`` is told of every connection that is turned away.
    """

    reactor: IReactorTime
    admission: IAdmission
    behindProxy: IAdmission
    origins: Origins
    deadline: float
    counted: Callable[[str, int], object]
    site: Callable[[tuple[Way, ...]], IProtocolFactory]

    def factoryFor(self, listen: Listen, spoken: Spoken) -> IProtocolFactory:
        """Return what serves the connections of a listener: its one dialect, or all, told apart by first bytes."""
        streams = {} if listen.onlyWebSockets else spoken.streams
        if listen.dialect is not None and listen.dialect in streams and not spoken.webSockets:
            return streams[listen.dialect]
        door = None if listen.isStdio else self._door(spoken, listen)
        if door is not None and not streams:
            return door
        return SniffingFactory(streams, door, self.reactor, self.deadline, self.counted, spoken.claims)

    def _door(self, spoken: Spoken, listen: Listen) -> HttpDoorFactory:
        site = self.site(spoken.ways)
        return HttpDoorFactory(
            spoken.webSockets,
            site,
            self.admission,
            self.behindProxy,
            self.origins,
            self.reactor,
            self.deadline,
            self.counted,
            listen.url.path if listen.url is not None and listen.onlyWebSockets else "",
        )
