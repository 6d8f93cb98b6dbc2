"""Progress of consumer groups: reported to brokers, and read from them.

:func:`report` needs Spark and is imported at its first use; the other names work without Spark.
"""

from typing import TYPE_CHECKING, Any

from fleximq.pipeline.lag.reporter import Group, Reporter, forget, groups

if TYPE_CHECKING:
    from fleximq.pipeline.lag.query_listener import report

__all__ = ["Group", "Reporter", "forget", "groups", "report"]


def __getattr__(name: str) -> Any:
    if name != "report":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from fleximq.pipeline.lag.query_listener import report

    return report
