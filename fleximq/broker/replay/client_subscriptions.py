"""Subscriptions of clients to names and patterns, live or starting in the past.

A client that may not subscribe to every topic of a pattern receives the permitted ones.
"""

from functools import partial

from fleximq.broker.authorization import permitListening, permitsListening
from fleximq.broker.envelope import ClientSubscription, ConnectedClient
from fleximq.broker.replay.feed import IOutlet
from fleximq.broker.replay.replay import Replays, Start
from fleximq.broker.topics.names import checkName
from fleximq.broker.topics.topic_table import TopicTable
from fleximq.errors import SubscriptionFailed
from fleximq.interfaces import IRights, ISubscriber
from fleximq.rights import UNRESTRICTED, Action
from fleximq.values.patterns import isPattern


class ClientSubscriptions:
    """Adds clients' subscriptions, at most ``most`` each, to the topic table; those over a reduced maximum remain."""

    def __init__(self, topics: TopicTable, replays: Replays, most: int) -> None:
        self._topics = topics
        self._replays = replays
        self.most = most

    def check(self, client: ConnectedClient, name: str, literal: bool = False) -> None:
        """See :meth:`fleximq.broker.broker.Broker.checkSubscription`."""
        checkName(name)
        permitListening(client, name, literal)
        if len(client.subscriptions) >= self.most and name not in client.subscriptions:
            raise SubscriptionFailed(f"more than {self.most} subscriptions")
        if client.rights.limits.topics is not None and (literal or not isPattern(name)):
            self._topics.make(name, client.principal, client.rights.limits.topics)

    def subscribe(self, client: ConnectedClient, subscriber: ISubscriber, name: str, literal: bool = False) -> None:
        """See :meth:`fleximq.broker.broker.Broker.subscribe`."""
        self.check(client, name, literal)
        if name not in client.subscriptions:
            self._add(client, subscriber, name, literal)

    def follow(self, client: ConnectedClient, outlet: IOutlet, name: str, start: Start) -> None:
        """See :meth:`fleximq.broker.broker.Broker.follow`."""
        self.check(client, name, False)
        feedRange, search = self._replays.check(client, name, start)
        feed = self._replays.feed(client, outlet, permanent=True)
        held = client.subscriptions.get(name)
        if held is None or held.subscriber is not feed:
            self.unsubscribe(client, name)
            self._add(client, feed, name, False)
        self._replays.follow(client, feed, feedRange, start, search)

    def _add(self, client: ConnectedClient, subscriber: ISubscriber, name: str, literal: bool) -> None:
        if literal or not isPattern(name):
            self._topics.subscribe(subscriber, name)
        else:
            self._topics.subscribePattern(subscriber, name)
        client.subscriptions[name] = ClientSubscription(subscriber, literal)
        self._restrict(client, subscriber)

    def unsubscribe(self, client: ConnectedClient, name: str) -> None:
        """See :meth:`fleximq.broker.broker.Broker.unsubscribe`."""
        subscription = client.subscriptions.pop(name, None)
        if subscription is None:
            return
        if subscription.literal or not isPattern(name):
            self._topics.unsubscribe(subscription.subscriber, name)
        else:
            self._topics.unsubscribePattern(subscription.subscriber, name)
        if client.rights not in UNRESTRICTED:
            self._topics.free(subscription.subscriber)
        self._replays.drop(client, name)

    def changeRights(self, client: ConnectedClient, rights: IRights) -> list[str]:
        """Change a client's rights, end the subscriptions that they do not permit, and return the names of these."""
        if client.rights not in UNRESTRICTED:
            for each in client.subscriptions.values():
                self._topics.free(each.subscriber)
        client.rights = rights
        for each in client.subscriptions.values():
            self._restrict(client, each.subscriber)
        lost = [name for name, each in client.subscriptions.items() if not permitsListening(client, name, each.literal)]
        for name in lost:
            self.unsubscribe(client, name)
        if client.subscriptions:
            self._topics.reroute()
            self._replays.narrow(client)
        return lost

    def _restrict(self, client: ConnectedClient, subscriber: ISubscriber) -> None:
        if client.rights not in UNRESTRICTED:
            self._topics.restrict(subscriber, partial(client.rights.may, Action.SUBSCRIBE))

    def leave(self, client: ConnectedClient) -> None:
        """End all subscriptions of a client."""
        for name in tuple(client.subscriptions):
            self.unsubscribe(client, name)
        self._replays.leave(client)
