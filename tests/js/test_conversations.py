"""The conversations of all forms of the client, with the JavaScript client in node."""

from collections.abc import Callable
from types import ModuleType
from typing import Any

from twisted.trial.unittest import SkipTest

from tests.client import test_conversations, test_queues, test_reconnecting
from tests.js.node_form import OnNode


def without(reason: str) -> Callable[[Any], None]:
    """Return a test in place of one that does not apply."""

    def test(self: Any) -> None:
        raise SkipTest(reason)

    return test


def inNode(module: ModuleType, name: str, scheme: str = "", **left: str) -> None:
    """Make a test case of the one with this name in another module, except for some tests, which have reasons."""
    kind = getattr(module, f"Asyncio{scheme.title()}{name}Tests").__bases__[0]
    title = f"Javascript{name}Tests"
    fields = {"Form": OnNode, "scheme": scheme, "__doc__": kind.__doc__, "__module__": __name__}
    globals()[title] = type(title, (kind,), fields | {test: without(reason) for test, reason in left.items()})


inNode(
    test_conversations,
    "Conversations",
    "ws",
    test_clientWithUnreadDeliveriesStopsReading="a page cannot stop reading of a WebSocket",
    test_codecEncodesAllButTheBrokersValues="it has no other codec than MessagePack",
    test_doubtfulTopicIsUsedWithAWarning="it does not judge topics",
    test_flushRaisesRefusalsOnceAndTheClientGoesOn="it does not judge topics; client.test.mjs has the rest",
    test_wrongArgumentsAreRefusedAndNothingIsSent="its types are TypeScript's",
)
inNode(test_conversations, "Journals")
inNode(
    test_queues,
    "Queues",
    test_definitionsAreMadeOnce="it defines queues by a request",
    test_aPausedQueueDeliversNothing="it pauses queues by a request",
    test_schedulesAreListedAndRemoved="it lists schedules by a request",
    test_aScheduleIsPublishedIntoItsQueue="it adds schedules by a request",
    test_wrongArgumentsAreRefusedBeforeAnythingIsSent="its types are TypeScript's",
    test_workSettlesByTheEndOfItsFunction="client.test.mjs shows it",
    test_aSecondConsumerOfAQueueIsRefused="the broker checks the prefetch",
)
inNode(
    test_queues,
    "Outages",
    test_aClientThatDoesNotReconnectEndsItsWork="its work is a function of the consumer",
    test_closedClientsRaise="it cancels jobs by a request",
)
inNode(
    test_reconnecting,
    "Networks",
    test_clientThatConnectsOnceTriesAllAddresses="it does not tell its address",
    test_otherAddressIsTriedFirstAfterALoss="it does not tell its address",
    test_errorNamesEachAddress="its error names the last address",
    test_gapsAreShownWhereTheyAreAskedFor="it has no log; client.test.mjs shows them",
    test_refusalForGoodEndsTheClientWithItsReason="the peer of this test speaks no WebSocket",
)
inNode(test_reconnecting, "Services")
inNode(test_reconnecting, "Restarts")
