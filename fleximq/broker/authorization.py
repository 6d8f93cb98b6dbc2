"""Checks a client's rights; a comparison or two for clients without restrictions."""

from fleximq.broker.envelope import ConnectedClient
from fleximq.broker.topics.names import checkName
from fleximq.errors import NotPermitted
from fleximq.rights import UNRESTRICTED, Action
from fleximq.values.patterns import isPattern

_WORDS = {
    Action.PUBLISH: "publishing to {!r}",
    Action.SUBSCRIBE: "subscribing to {!r}",
    Action.CONSUME: "consuming from {!r}",
    Action.REQUEST: "a request to {!r}",
    Action.NOTIFY: "a notification to {!r}",
    Action.BROADCAST: "a broadcast",
    Action.READ: "reading {!r}",
    Action.PROGRESS: "reporting the progress of {!r}",
    Action.SERVE: "joining as {!r}",
    Action.ADMIN: "what {!r} does",
}
#: Actions on topics; invalid topic names are reported before missing rights.
_ON_TOPICS = frozenset({Action.PUBLISH, Action.SUBSCRIBE, Action.CONSUME})


def permits(client: ConnectedClient, action: Action, name: str) -> bool:
    """Tell whether a client may perform this action, other than ``admin``, on the topic or path of this name."""
    rights = client.rights
    return rights in UNRESTRICTED or rights.may(action, name)


def permit(client: ConnectedClient, action: Action, name: str) -> None:
    """Check :func:`permits`; raises NotPermitted, or InvalidTopic if the name is not a valid topic either."""
    rights = client.rights
    if rights not in UNRESTRICTED and not rights.may(action, name):
        raise _refusal(action, name)


def permitPath(client: ConnectedClient, action: Action, path: str) -> None:
    """Check that a client may use one of the broker's own paths; raises NotPermitted."""
    if not client.rights.may(action, path):
        raise _refusal(action, path)


def permitsListening(client: ConnectedClient, name: str, literal: bool = False) -> bool:
    """Tell whether a client may subscribe to a name, or to at least one topic that a pattern can match."""
    if literal or not isPattern(name):
        return permits(client, Action.SUBSCRIBE, name)
    return client.rights.mayMatch(Action.SUBSCRIBE, name)


def permitListening(client: ConnectedClient, name: str, literal: bool = False) -> None:
    """Check :func:`permitsListening`; the errors are those of :func:`permit`."""
    if not permitsListening(client, name, literal):
        raise _refusal(Action.SUBSCRIBE, name)


def sees(client: ConnectedClient, name: str) -> bool:
    """Tell whether a topic may be shown to a client: it may publish to it, subscribe to it, or consume from it."""
    rights = client.rights
    return rights in UNRESTRICTED or any(rights.may(action, name) for action in _ON_TOPICS)


def mayChange(client: ConnectedClient, principal: str | None, topic: str) -> bool:
    """Tell whether a client may change a schedule that a principal made for a topic; False if it is hidden from the
    client, which then must not learn that it exists.

    :raises NotPermitted: the client sees the schedule of another principal, but may not publish to its topic.
    """
    if principal is None or principal != client.principal:
        if not sees(client, topic):
            return False
        permit(client, Action.PUBLISH, topic)
    return True


def _refusal(action: Action, name: str) -> NotPermitted:
    if action in _ON_TOPICS:
        checkName(name)
    return NotPermitted(f"{_WORDS[action].format(name)} is not permitted", name)
