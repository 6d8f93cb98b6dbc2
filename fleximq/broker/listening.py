"""What clients subscribed to: names and patterns, live or from a place in the past on."""

from fleximq.broker.feed import Outlet
from fleximq.broker.names import checkName, isPattern
from fleximq.broker.replay import Replays, Start
from fleximq.broker.topics import TopicTable
from fleximq.broker.values import Client, Pattern
from fleximq.errors import SubscriptionFailed
from fleximq.interfaces import ISubscriber


class Listening:
    """Puts the subscriptions of clients into the topic table, and takes them out.

    :param most: how many one client may have.
    """

    def __init__(self, topics: TopicTable, replays: Replays, most: int) -> None:
        self._topics = topics
        self._replays = replays
        self._most = most

    def check(self, client: Client, name: str) -> None:
        """See :meth:`fleximq.broker.broker.Broker.checkSubscription`."""
        checkName(name)
        if len(client.patterns) >= self._most and name not in client.patterns:
            raise SubscriptionFailed(f"more than {self._most} subscriptions")

    def subscribe(self, client: Client, subscriber: ISubscriber, name: str, literal: bool) -> None:
        """See :meth:`fleximq.broker.broker.Broker.subscribe`."""
        self.check(client, name)
        if name not in client.patterns:
            self._add(client, subscriber, name, literal)

    def follow(self, client: Client, outlet: Outlet, name: str, start: Start) -> None:
        """See :meth:`fleximq.broker.broker.Broker.follow`."""
        self.check(client, name)
        cover = self._replays.check(name, start)
        feed = self._replays.lasting(client, outlet)
        held = client.patterns.get(name)
        if held is None or held.subscriber is not feed:
            self.unsubscribe(client, name)
            self._add(client, feed, name, False)
        self._replays.follow(feed, cover, start)

    def _add(self, client: Client, subscriber: ISubscriber, name: str, literal: bool) -> None:
        if literal or not isPattern(name):
            self._topics.subscribe(subscriber, name)
        else:
            self._topics.subscribePattern(subscriber, name)
        client.patterns[name] = Pattern(subscriber, literal)

    def unsubscribe(self, client: Client, name: str) -> None:
        """See :meth:`fleximq.broker.broker.Broker.unsubscribe`."""
        pattern = client.patterns.pop(name, None)
        if pattern is None:
            return
        if pattern.literal or not isPattern(name):
            self._topics.unsubscribe(pattern.subscriber, name)
        else:
            self._topics.unsubscribePattern(pattern.subscriber, name)
        self._replays.drop(client, name)

    def leave(self, client: Client) -> None:
        """Take back all that a client subscribed to."""
        for name in tuple(client.patterns):
            self.unsubscribe(client, name)
        self._replays.leave(client)
