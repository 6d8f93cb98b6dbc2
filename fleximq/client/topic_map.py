"""The clients of a program that uses several clusters, found by the first levels of topics."""

from collections.abc import Mapping
from typing import Generic, TypeVar

from fleximq.values.patterns import covers, overlap

C = TypeVar("C")

#: A dead letter is in the cluster of its topic.
_DEAD = "$dead/"


class TopicMap(Generic[C]):
    """Finds the client of the cluster that has a topic, a pattern, a queue or the key of a value::

        clients = TopicMap({"": main, "metrics": metrics})
        clients["metrics.cpu"].publish("metrics.cpu", 0.4)

    :param clients: by prefix, one or several levels of names; of several that match, the longest counts. "" is the
        client for all other names. Clients may be of any form.
    """

    def __init__(self, clients: Mapping[str, C]) -> None:
        self._clients = dict(clients)
        self._patterns = {f"{prefix}.#" if prefix else "#": prefix for prefix in sorted(clients, key=len, reverse=True)}

    def __getitem__(self, name: str) -> C:
        """Return a client; raises LookupError if no cluster has the name, or a pattern matches names of several."""
        wanted = name.removeprefix(_DEAD)
        for pattern, prefix in self._patterns.items():
            if covers(pattern, wanted):
                return self._clients[prefix]
            if overlap(pattern, wanted):
                raise LookupError(f"{name} matches topics of several clusters: use the client of each")
        raise LookupError(f"no cluster has {name}; these have prefixes: {', '.join(sorted(self._clients))}")
