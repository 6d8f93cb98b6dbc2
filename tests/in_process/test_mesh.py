"""Clients in the process of a node of a mesh: they reach the clients of all nodes."""

from typing import Any

from twisted.internet.defer import Deferred

from fleximq.rights import EVERYTHING
from tests.in_process.parts import makeClients
from tests.services.test_meshed_broker import MeshCase


class MeshTests(MeshCase):
    """One client at each of two nodes."""

    def setUp(self) -> None:
        super().setUp()
        self.asker, self.service = (
            makeClients(broker, self.clock).connect(EVERYTHING, name)
            for broker, name in ((self.a, ""), (self.b, "calc"))
        )
        self.pass_()

    def done(self, deferred: "Deferred[Any]") -> Any:
        """Return a result that takes some time."""
        self.pass_()
        return self.successResultOf(deferred)

    def test_aRequestByNameIsAnsweredAtAnotherNode(self) -> None:
        self.service.serve("/add", lambda request: sum(request.value))
        self.assertEqual(self.done(self.asker.request("calc", "/add", [1, 2])), 3)

    def test_aSubscriberAtAnotherNodeGetsAPublication(self) -> None:
        reader = self.done(self.service.subscribe("news.*"))
        self.done(self.asker.publish("news.today", {"rain": True}, headers={"colour": "red"}))
        self.pass_()
        delivery = self.done(reader.next())
        self.assertEqual(
            (delivery.value, delivery.publisher, delivery.header["colour"]), ({"rain": True}, self.asker.id, "red")
        )

    def test_aNotificationAndABroadcastReachAnotherNode(self) -> None:
        box = self.service.notifications()
        self.done(self.asker.notify("calc", "/door", "open"))
        self.done(self.asker.broadcast("bye"))
        self.pass_()
        self.assertEqual([self.done(box.next()).value for _ in range(box.waiting)], ["open", "bye"])
