"""Queues of FlexiMQ clients at a node of a mesh that does not own the journal: as at the owner."""

from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from twisted.internet.defer import succeed
from twisted.internet.error import ConnectionDone
from twisted.internet.testing import StringTransport
from twisted.python.failure import Failure

from fleximq.dialects.connection.write_turn import WriteTurn
from fleximq.dialects.context import ListenerContext
from fleximq.dialects.fleximq import FlexiFactory
from fleximq.dialects.fleximq.delegate import Delegate, buildDelegate
from fleximq.journal.broker_journal import ClosedJournal
from fleximq.services.mesh_node import Membership
from fleximq.services.meshed_broker import MeshedBroker
from tests.broker.parts import makeBroker
from tests.cluster.memory import MemoryLink, MemoryServers
from tests.dialects.conversations import HERE
from tests.dialects.flexi_peer import FlexiServer
from tests.dialects.fleximq import test_queues


class OwnersSide(StringTransport):
    """The owner's transport of a client's link; what it writes reaches the link at once."""

    def __init__(self, context: ListenerContext, description: Mapping[str, Any], link: Any) -> None:
        super().__init__(lenient=True)
        self._link = link
        self._isPaused = False
        self._session: Any = buildDelegate(context, Delegate.of(description), HERE)
        self._session.makeConnection(self)
        link.protocol = self
        link.registerProducer(self, True)
        link.resumeProducing()

    def write(self, data: bytes) -> None:
        """Pass output on."""
        if self._session is not None:
            self._link.write(data)

    def pauseProducing(self) -> None:
        """Let the owner wait, as a connection does whose other end is not read."""
        if not self._isPaused and self.producer is not None:
            self._isPaused = True
            self.producer.pauseProducing()

    def resumeProducing(self) -> None:
        """Let the owner go on."""
        if self._isPaused and self.producer is not None:
            self._isPaused = False
            self.producer.resumeProducing()

    def dataReceived(self, data: bytes) -> None:
        """Pass input on."""
        self._session.dataReceived(data)

    def readConnectionLost(self) -> None:
        """Pass the end of input on."""
        self._session.readConnectionLost()

    def loseConnection(self) -> None:
        """End the link."""
        self._link.loseWriteConnection()

    def connectionLost(self) -> None:
        """End the session."""
        session, self._session = self._session, None
        session.connectionLost(Failure(ConnectionDone()))


class MeshedServer(FlexiServer):
    """A server that owns the journal; its clients are at another node."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        clock, context = self.clock, self.context
        mesh = MemoryLink(MemoryServers(clock, Random(1)), "b")
        turn = WriteTurn(clock)
        connect = partial(OwnersSide, context)
        member = Membership(turn, mesh, "b", "1", clock, lambda: succeed(7), lambda: "a owns it", connect)
        node = makeBroker(clock, ClosedJournal(), make=partial(MeshedBroker, member))
        node.node.ids.fetch()  # type: ignore[attr-defined]
        self.factory = FlexiFactory(ListenerContext(node, context.settings, clock, turn, context.admission))


#: Tests in which plain publications and notifications reach clients of the other node, or rights are changed at the
#: owner: :mod:`tests.dialects.fleximq.test_owner_link` and :mod:`tests.services.test_meshed_broker` have those; and one
#: that depends on how much is unread, which is more here, as there are two outputs.
_OTHERS = (
    "test_withoutTheKeyNothingWaits", "test_aLimitRefusesThoseForWhichThereIsNoRoom", "test_pathsNeedTheirRights",
    "test_otherNotificationsToTheBrokerAreDropped", "test_aQueueMayHaveAnotherNameThanItsTopic",
    "test_subscribersOfTheTopicReceiveItToo", "test_consumingNeedsConsumeForQueueAndTopic",
    "test_settlingNeedsNoFurtherRight", "test_allQueuesHaveTheirTurn",
)  # fmt: skip


def _shownElsewhere(self: object) -> None:
    """Do nothing."""


_shownElsewhere.skip = "is about both nodes"  # type: ignore[attr-defined]


def _meshed(case: type) -> type:
    """Return a class of tests whose clients are at another node."""
    made = type(f"Meshed{case.__name__}", (case,), {"__module__": __name__, "__doc__": case.__doc__})
    for name in set(_OTHERS).intersection(dir(case)):
        setattr(made, name, _shownElsewhere)
    made.makeServer = lambda self, **more: MeshedServer(self.clock, piece=self.piece, **more)  # type: ignore[attr-defined]
    return made


MeshedEnqueueTests = _meshed(test_queues.EnqueueTests)
MeshedConsumerTests = _meshed(test_queues.ConsumerTests)
MeshedSettleTests = _meshed(test_queues.SettleTests)
MeshedScheduledTests = _meshed(test_queues.ScheduledTests)
MeshedSlowConsumerTests = _meshed(test_queues.SlowConsumerTests)
MeshedSlowConsumerOfManyQueuesTests = _meshed(test_queues.SlowConsumerOfManyQueuesTests)
MeshedRightsTests = _meshed(test_queues.RightsTests)
MeshedDurableTests = _meshed(test_queues.DurableTests)
MeshedNotStoredTests = _meshed(test_queues.NotStoredTests)
MeshedStopTests = _meshed(test_queues.StopTests)
MeshedVariantTests = _meshed(test_queues.VariantTests)
MeshedLongJobTests = _meshed(test_queues.LongJobTests)
