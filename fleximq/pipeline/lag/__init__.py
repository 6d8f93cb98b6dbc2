"""Progress of consumer groups: reported to brokers, and read from them; and the lag in a query's progress. Only
:func:`report` and :func:`offsetsBehind` need Spark; they are imported at their first use.
"""

from typing import TYPE_CHECKING, Any

from fleximq.pipeline.lag.reporter import Group, Reporter, forget, groups

if TYPE_CHECKING:
    from fleximq.pipeline.lag.query_listener import offsetsBehind, report

__all__ = ["Group", "Reporter", "forget", "groups", "offsetsBehind", "report"]


def __getattr__(name: str) -> Any:
    if name not in ("offsetsBehind", "report"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fleximq.pipeline.lag import query_listener

    return getattr(query_listener, name)
