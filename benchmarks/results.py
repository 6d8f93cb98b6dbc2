"""What was found: the runs of every broker in every scene, their medians, ratios and goals.

A broker that had a run refused has no number in that scene at all, only the reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from benchmarks.percentiles import median
from benchmarks.scenes import OURS, Goal
from benchmarks.work.effort import Figures


class Measured(Protocol):
    """A scene, as far as it matters here."""

    @property
    def name(self) -> str:
        """Its name, for who asks for it."""

    @property
    def title(self) -> str:
        """What it is, in words."""

    @property
    def goals(self) -> tuple[Goal, ...]:
        """What is wanted of ours."""


class Row(NamedTuple):
    """One figure of one broker; ``ratio`` and ``pairwise`` are ours to this broker's, None where there is none."""

    scene: str
    title: str
    figure: str
    broker: str
    median: float
    least: float
    most: float
    ratio: float | None
    pairwise: float | None
    goal: str
    met: bool | None


@dataclass(slots=True)
class Results:
    """The results of one scene; :meth:`ran` and :meth:`refuse` fill them in."""

    scene: Measured
    runs: dict[str, list[Figures]] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    def ran(self, broker: str, figures: Figures) -> None:
        """Add a run."""
        if broker not in self.refused:
            self.runs.setdefault(broker, []).append(figures)

    def refuse(self, broker: str, reason: str) -> None:
        """Take all numbers of a broker out, for this reason."""
        self.refused[broker] = reason
        self.runs.pop(broker, None)

    def values(self, broker: str, figure: str) -> list[float]:
        """Return a figure of all runs, in their order."""
        return [figures[figure] for figures in self.runs.get(broker, [])]

    def rows(self) -> Iterator[Row]:
        """Yield a row for each figure of each broker that has numbers, ours first."""
        figures = dict.fromkeys(figure for runs in self.runs.values() for run in runs for figure in run)
        for figure in figures:
            for broker in self.runs:
                yield self._row(broker, figure)

    def _row(self, broker: str, figure: str) -> Row:
        values, ours = self.values(broker, figure), self.values(OURS, figure)
        ratio = pairwise = None
        if broker != OURS and ours:
            ratio = median(ours) / median(values)
            pairwise = median([our / other for our, other in zip(ours, values, strict=False)])
        goal = self._goal(broker, figure)
        met = None
        if goal is not None and (goal.peer is None or ratio is not None):
            met = goal.isMet(median(values) if goal.peer is None else ratio or 0.0)
        text = "" if goal is None else f"{'at most' if goal.atMost else 'at least'} {goal.bound:,g}"
        return Row(
            self.scene.name, self.scene.title, figure, broker, median(values), min(values), max(values),
            ratio, pairwise, text, met,
        )  # fmt: skip

    def _goal(self, broker: str, figure: str) -> Goal | None:
        for goal in self.scene.goals:
            if goal.figure == figure and (goal.peer or OURS) == broker:
                return goal
        return None

    def asJson(self) -> dict[str, Any]:
        """Return everything, every single run included."""
        return {
            "scene": self.scene.name,
            "title": self.scene.title,
            "rows": [row._asdict() for row in self.rows()],
            "runs": self.runs,
            "refused": self.refused,
        }


def unmet(results: Sequence[Results]) -> list[Row]:
    """Return the rows that miss their goal."""
    return [row for each in results for row in each.rows() if row.met is False]
