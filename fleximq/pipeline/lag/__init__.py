"""`__init__` re-exports groups, forget, report, Reporter."""

from fleximq.pipeline.lag.reporter import Group, Reporter, forget, groups, report

__all__ = ["Group", "Reporter", "forget", "groups", "report"]
