"""Brokers die, stand still, and return without their folders."""

import os
import signal
import time
from contextlib import suppress

from tests.cluster.nats.faults import FaultyHosts, fault
from tests.cluster.nats.namespaces import FURTHER, HOSTS


class BrokerFaults(FaultyHosts):
    """The faults of brokers, and of their disks."""

    @fault
    def killOwner(self) -> None:
        """The owner dies."""
        self.brokers[self.owner].send(signal.SIGKILL)
        time.sleep(1)

    @fault
    def killStandby(self) -> None:
        """Another broker dies."""
        self.brokers[self.standby()].send(signal.SIGKILL)
        time.sleep(1)

    @fault
    def killOwners(self) -> None:
        """The owner dies, and the next one."""
        for _ in range(2):
            term = self.term
            self.brokers[self.owner].send(signal.SIGKILL)
            self.wait(lambda: self.term > term, 20)  # noqa: B023

    @fault
    def killBrokers(self) -> None:
        """All brokers die."""
        for broker in self.brokers.values():
            broker.send(signal.SIGKILL)
        time.sleep(1)

    @fault
    def stopOwner(self) -> None:
        """The owner's process is stopped, and goes on."""
        self.brokers[self.owner].send(signal.SIGSTOP)
        self.sleep(2, 30)

    @fault
    def stopStandby(self) -> None:
        """Another broker's process is stopped, and goes on."""
        self.brokers[self.standby()].send(signal.SIGSTOP)
        self.sleep(5, 20)

    @fault
    def endOwner(self) -> None:
        """The owner is stopped in order, and started again."""
        self.brokers[self.owner].send(signal.SIGTERM)
        time.sleep(3)

    @fault
    def endBrokers(self) -> None:
        """One broker after the other is stopped in order, as for a new version."""
        for host in HOSTS:
            ends = self.brokers[host].ends.total()
            self.brokers[host].send(signal.SIGTERM)
            self.wait(lambda: self.brokers[host].ends.total() > ends, 30)  # noqa: B023
            self.wait(self.isSettled, 30)

    @fault
    def move(self) -> None:
        """An operator hands the shard to another node."""
        self.wait(self.isSettled, 30)
        self.operate("move", "0", self.standby())

    @fault
    def emptyOwner(self) -> None:
        """The owner dies and returns at once, with an empty folder."""
        self.wait(self.isSettled, 60)
        host = self.owner
        self.brokers[host].down()
        self.empty(host)

    @fault
    def emptyStandby(self) -> None:
        """Another broker returns with an empty folder, and the owner dies while it reads."""
        self.wait(self.isSettled, 60)
        host, owner = self.standby(), self.owner
        self.brokers[host].down()
        self.empty(host)
        self.brokers[host].held = False
        self.sleep(1, 4)
        self.brokers[owner].send(signal.SIGKILL)

    @fault
    def cutCopy(self) -> None:
        """A broker's machine loses its power, with the last bytes of its copy."""
        host = self.standby()
        self.brokers[host].down()
        segment = max(self.journal(host).glob("*.fxj"), default=None)
        if segment is not None:
            os.truncate(segment, max(0, segment.stat().st_size - self.random.randrange(1 << 16)))

    @fault
    def fullDisk(self) -> None:
        """The disk of the owner is full for a while; its broker is started again when it has room."""
        host = self.owner
        with (self.folder / host / "filling").open("wb") as file:
            for size in (1 << 24, 1 << 12):
                with suppress(OSError):
                    while True:
                        os.posix_fallocate(file.fileno(), file.tell(), size)
                        file.seek(size, os.SEEK_CUR)
        self.sleep(5, 15)
        (self.folder / host / "filling").unlink()
        self.brokers[host].send(signal.SIGTERM)

    @fault
    def furtherNode(self) -> None:
        """A further node joins, is removed, and is forgotten."""
        self.join(FURTHER)
        broker = self.brokers[FURTHER]
        self.wait(lambda: self.states().get(FURTHER) == "following", 60)
        if self.random.random() < 0.5:
            broker.end(signal.SIGKILL)
        else:
            broker.end()
        del self.brokers[FURTHER]
        self._terms[FURTHER] = 0
        self.empty(FURTHER)
        # Its key may be ahead of those of the others until they have written theirs again.
        if not self.wait(lambda: "is forgotten" in self.operate("forget", FURTHER), 60):
            self.broken.append("a node that has ended cannot be forgotten")
