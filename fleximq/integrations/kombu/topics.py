"""The topics of exchanges: ``exchange/NAME/ROUTING.KEY``; that of the default exchange is the queue's name.

Levels of a topic are separated by ``.`` or ``/``, as are words of a routing key by dots. The name of an exchange is one
level: its separators are escaped. ``*`` and ``#`` in a routing key are literal, except in a binding to a topic
exchange.
"""

#: The first level of all topics of named exchanges.
_PREFIX = "exchange"
_NAME = str.maketrans({"%": "%25", ".": "%2E", "/": "%2F", "*": "%2A", "#": "%23"})
_WORD = str.maketrans({"%": "%25", "/": "%2F", "*": "%2A", "#": "%23"})


def topicOf(exchange: str, routingKey: str) -> str:
    """Return the topic to which a message is published."""
    if not exchange:
        return routingKey
    return f"{_PREFIX}/{exchange.translate(_NAME)}/{routingKey.translate(_WORD)}"


def bindingSource(exchange: str, routingKey: str, kind: str) -> str:
    """Return the source of a queue for a binding to an exchange, by its kind: direct, topic or fanout.

    :raises ValueError: the broker cannot match this routing key, or it has no exchanges of this kind.
    """
    if kind == "fanout":
        return topicOf(exchange, "") + "#"
    if kind == "direct":
        return topicOf(exchange, routingKey)
    if kind != "topic":
        raise ValueError(f"the exchange {exchange!r} is of the type {kind!r}, but there are direct, topic and fanout")
    *words, last = routingKey.split(".")
    if "#" in words:
        raise ValueError(f"the binding {routingKey!r} has '#' before its end, where the broker allows it only")
    levels = [each if each == "*" else each.translate(_WORD) for each in words]
    levels.append(last if last in ("*", "#") else last.translate(_WORD))
    return topicOf(exchange, "") + ".".join(levels)
