"""The register of connected clients of all dialects, with their ids and names.

Ids count up from 1000 and repeat only after the whole range of the FlexiMQ document (section 4.1.1) was used; ids in
use or reserved are skipped.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from itertools import islice

from fleximq.broker.envelope import FIRST_CLIENT_ID, LAST_CLIENT_ID, ConnectedClient
from fleximq.errors import Conflict, NoCapacity
from fleximq.interfaces import IPeer

#: Ids recorded at a time.
BLOCK = 1000
#: So many clients of one name are compared for a request.
COMPARED = 32


class Clients:
    """The connected clients; ``maximum`` is their maximum number, and clients over a reduced maximum remain.

    :param seconds: the clock of ``ConnectedClient.joined``.
    :param randomHex: returns that many random hexadecimal digits, for the names of Identity users.
    :param nextId: returns the next id, or raises NoCapacity; by default they count up.
    """

    def __init__(
        self,
        maximum: int,
        seconds: Callable[[], float],
        randomHex: Callable[[int], str],
        nextId: Callable[[], int] | None = None,
    ) -> None:
        self._byId: dict[int, ConnectedClient] = {}
        self._reserved: dict[int, bool] = {}  # and whether another node has given it
        self._names: set[str] = set()
        self._services: dict[str, dict[int, None]] = {}  # name -> ids, first the next in turn
        self._perPrincipal: Counter[str | None] = Counter()
        self._next = FIRST_CLIENT_ID
        self._noteAt = LAST_CLIENT_ID + 1  # never: without a journal ids start at 1000 in each run
        self._note: Callable[[int], None] = lambda until: None
        self.maximum = maximum
        self._seconds = seconds
        self._randomHex = randomHex
        self.peers: dict[int, tuple[ConnectedClient, IPeer]] = {}
        self._nextId = nextId or self._count

    def __len__(self) -> int:
        return len(self._byId)

    def __iter__(self) -> Iterator[ConnectedClient]:
        return iter(self._byId.values())

    def continueFrom(self, first: int, note: Callable[[int], None]) -> None:
        """Start after the ids that an earlier run may have given, and record those that this run may give.

        :param first: the end of the recorded ids, 0 without any.
        :param note: called with an id: lower ones may be given from now on. It need not be on disk at once:
            :data:`BLOCK` ids are skipped at the start, as many as a lost record can be about.
        """
        behind = first + BLOCK
        self._next = behind if FIRST_CLIENT_ID + BLOCK <= behind <= LAST_CLIENT_ID else FIRST_CLIENT_ID
        self._note = note
        self._reserveAhead(self._next)

    def find(self, clientId: int) -> ConnectedClient | None:
        """Return the client with this id, or None."""
        return self._byId.get(clientId)

    def reserve(self, clientId: int | None = None) -> int:
        """Return an id for a later :meth:`add`; other clients do not get it until :meth:`release`.

        :param clientId: the id that another node has given; raises Conflict if a client has it here already.
        """
        isDelegate = clientId is not None
        if clientId is None:
            clientId = self._newId()
        elif clientId in self._byId or clientId in self._reserved:
            raise Conflict(f"there is a client {clientId} already")
        self._reserved[clientId] = isDelegate
        return clientId

    def release(self, clientId: int) -> None:
        """Cancel a reservation; a no-op if it does not exist."""
        self._reserved.pop(clientId, None)

    def add(
        self,
        dialect: str,
        peer: IPeer | None,
        principal: str | None,
        address: str,
        user: bool,
        clientId: int | None = None,
        most: int | None = None,
    ) -> ConnectedClient:
        """Register a new connection with an id and a name.

        :param user: name it ``user-<8 hex digits>``.
        :param clientId: an id reserved for it; the reservation ends.
        :param most: maximum number of clients of its principal, or of all anonymous ones.
        :raises NoCapacity: the broker or the principal has the maximum number of clients.
        """
        if len(self._byId) >= self.maximum:
            raise NoCapacity("the broker has as many clients as it may")
        if most is not None and self._perPrincipal[principal] >= most:
            raise NoCapacity(f"{principal or 'anonymous'} has {most} clients already, as many as its limits permit")
        self._perPrincipal[principal] += 1
        isDelegate = clientId is not None and self._reserved.pop(clientId)
        if clientId is None:
            clientId = self._newId()
        name = self._newUser() if user else f"{dialect}-{clientId}"
        client = ConnectedClient(clientId, dialect, name, principal, address, peer, self._seconds())
        client.isDelegate = isDelegate
        self._byId[clientId] = client
        if user:
            self._names.add(name)
        if peer is not None:
            self.peers[clientId] = client, peer
        return client

    def remove(self, client: ConnectedClient) -> bool:
        """Remove a client; False if it was not registered any more."""
        if self._byId.pop(client.id, None) is None:
            return False
        self._perPrincipal[client.principal] -= 1
        if not self._perPrincipal[client.principal]:
            del self._perPrincipal[client.principal]
        self._names.discard(client.name)
        if client.peer is not None:  # or its id and name may be those of a client of another node
            self.rename(client, "")
            del self.peers[client.id]
        return True

    def rename(self, client: ConnectedClient, service: str) -> None:
        """Replace the name by which direct messages reach a client; "": no name. Several clients may share one."""
        others = self._services.get(client.service)
        if others is not None:
            del others[client.id]
            if not others:
                del self._services[client.service]
        client.service = service
        if service:
            self._services.setdefault(service, {})[client.id] = None

    def accepting(self, target: int | str) -> Collection[int]:
        """Return the ids of the connected clients with this id or name that accept direct messages."""
        if isinstance(target, str):
            return self._services.get(target, ())
        return (target,) if target in self.peers else ()

    def leastBusy(self, service: str, busy: Callable[[int], int]) -> int | None:
        """Return the id of the client with this name for which ``busy`` is least; None without clients of this name.

        Clients for which it is equal take turns. Of many clients, only the next ones in turn are compared.
        """
        ids = self._services.get(service)
        if ids is None:
            return None
        chosen = min(islice(ids, COMPARED), key=busy)
        del ids[chosen]
        ids[chosen] = None
        return chosen

    def _count(self) -> int:
        clientId = self._next
        if clientId < LAST_CLIENT_ID:
            self._next = clientId + 1
        else:
            self._next = self._noteAt = FIRST_CLIENT_ID
        if clientId >= self._noteAt:
            self._reserveAhead(clientId)
        return clientId

    def _newId(self) -> int:
        while True:
            clientId = self._nextId()
            if clientId not in self._byId and clientId not in self._reserved:
                return clientId

    def _reserveAhead(self, clientId: int) -> None:
        self._note(min(clientId + 2 * BLOCK, LAST_CLIENT_ID + 1))
        self._noteAt = clientId + BLOCK

    def _newUser(self) -> str:
        while True:
            name = f"user-{self._randomHex(8)}"
            if name not in self._names:
                return name
