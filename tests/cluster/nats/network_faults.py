"""Machines die and stand still, and their network is cut."""

import signal

from tests.cluster.nats.faults import FaultyHosts, fault
from tests.cluster.nats.namespaces import HOSTS


class NetworkFaults(FaultyHosts):
    """The faults of machines, and of the network between them."""

    def _others(self, *hosts: str) -> list[str]:
        return [place for place in self.network.addresses if place[1] not in hosts]

    def _cut(self, some: list[str], others: list[str]) -> None:
        self.network.cut(some, others)
        self.network.cut(others, some)

    def _hostDown(self, *hosts: str) -> None:
        for host in hosts:
            for process in (self.brokers[host], self.servers[host]):
                process.held = True
                process.send(signal.SIGKILL)

    @fault
    def killOwnersHost(self) -> None:
        """The owner's machine dies."""
        self._hostDown(self.owner)
        self.sleep(5, 15)

    @fault
    def killStandbysHost(self) -> None:
        """Another machine dies."""
        self._hostDown(self.standby())
        self.sleep(5, 15)

    @fault
    def killHosts(self) -> None:
        """All machines die."""
        self._hostDown(*HOSTS)
        self.sleep(1, 5)

    @fault
    def stopOwnersHost(self) -> None:
        """The owner's machine stands still for a while."""
        host = self.owner
        for process in (self.brokers[host], self.servers[host]):
            process.send(signal.SIGSTOP)
        self.sleep(3, 20)

    def _cutHost(self, host: str) -> None:
        self._cut(["n" + host, "b" + host], self._others(host))
        self.sleep(5, 20)

    @fault
    def cutOwner(self) -> None:
        """The owner's machine is cut off: a minority."""
        self._cutHost(self.owner)

    @fault
    def cutStandby(self) -> None:
        """Another machine is cut off: the owner is in the majority."""
        self._cutHost(self.standby())

    @fault
    def cutAll(self) -> None:
        """All machines are cut off from one another: nobody has the majority."""
        for host in HOSTS:
            self.network.cut(["n" + host, "b" + host], self._others(host))
        self.sleep(5, 15)

    @fault
    def cutForLong(self) -> None:
        """The owner is cut off until its process ends."""
        host = self.owner
        self._cut(["n" + host, "b" + host], self._others(host))
        self.sleep(22, 30)

    @fault
    def oneWayOut(self) -> None:
        """Nothing from the owner's machine arrives at the others."""
        host = self.owner
        self.network.cut(["n" + host, "b" + host], self._others(host))
        self.sleep(5, 20)

    @fault
    def oneWayIn(self) -> None:
        """Nothing from the others arrives at the owner's machine."""
        host = self.owner
        self.network.cut(self._others(host), ["n" + host, "b" + host])
        self.sleep(5, 20)

    @fault
    def cutBroker(self) -> None:
        """The owner is cut off from all nats-servers."""
        self._cut(["b" + self.owner], ["n" + host for host in HOSTS])
        self.sleep(5, 20)

    @fault
    def cutFollower(self) -> None:
        """Another broker is cut off from all nats-servers."""
        self._cut(["b" + self.standby()], ["n" + host for host in HOSTS])
        self.sleep(5, 20)

    @fault
    def cutBrokers(self) -> None:
        """The brokers are cut off from one another, not from the nats-servers."""
        for host in HOSTS:
            self.network.cut(["b" + host], ["b" + other for other in HOSTS if other != host])
        self.sleep(5, 15)

    @fault
    def cutServer(self) -> None:
        """A nats-server is cut off from everything."""
        own = "n" + self.random.choice(HOSTS)
        self._cut([own], [place for place in self.network.addresses if place != own])
        self.sleep(5, 20)

    @fault
    def flap(self) -> None:
        """The owner's machine is cut off again and again, for moments."""
        host = self.owner
        for _ in range(8):
            self._cut(["n" + host, "b" + host], self._others(host))
            self.sleep(0.2, 2)
            self.network.heal()
            self.sleep(0.2, 2)
