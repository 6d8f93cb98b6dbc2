"""What was found: the runs of every broker in every scene, their medians, ratios and goals.

A broker that had a run refused has no number in that scene at all, only the reason.
"""

import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from benchmarks.percentiles import median
from benchmarks.refused import Refused
from benchmarks.scenes import OURS, Goal
from benchmarks.work.effort import Figures

#: What of the head may differ between parts of one measurement.
_CHANGING = ("time", "load before")


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
    """One figure of one broker; ``ratio`` and ``pairwise`` are ours to this broker's, None where there is none.

    ``share`` is how much of its goal it reaches, of several the least; None where a goal cannot be judged.
    """

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
    share: float | None

    def __str__(self) -> str:
        reached = "not judged" if self.share is None else f"missed, {self.share:.2f} of it reached"
        return f"Goal {reached}: {self.title}, {self.figure}, {self.broker}: {self.goal}"


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

    @contextmanager
    def refusing(self, broker: str) -> Iterator[None]:
        """Refuse a broker for any error in the block, so that the others still have their numbers."""
        try:
            yield
        except Refused as error:
            self.refuse(broker, f"{error}")
        except Exception as error:
            self.refuse(broker, traceback.format_exception_only(error)[-1].strip()[:500])

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
        goals = [goal for goal in self.scene.goals if (goal.of, goal.figure) == (broker, figure)]
        return Row(
            self.scene.name, self.scene.title, figure, broker, median(values), min(values), max(values),
            ratio, pairwise, ", ".join(map(str, goals)), self._share(goals),
        )  # fmt: skip

    def _share(self, goals: Sequence[Goal]) -> float | None:
        if not goals or any(goal.peer and not self.values(goal.peer, goal.figure) for goal in goals):
            return None
        return min(
            goal.share(
                median(self.values(goal.of, goal.figure))
                / (median(self.values(goal.peer, goal.figure)) if goal.peer else 1)
            )
            for goal in goals
        )

    def asJson(self) -> dict[str, Any]:
        """Return everything, every single run included."""
        return {
            "scene": self.scene.name,
            "title": self.scene.title,
            "rows": [row._asdict() for row in self.rows()],
            "runs": self.runs,
            "refused": self.refused,
        }


def store(file: Path | None, results: Sequence[Results], head: Mapping[str, str]) -> None:
    """Write everything anew, as JSON; an interrupted run leaves what it has."""
    if file is not None:
        new = file.with_name(f"{file.name}.new")
        new.write_text(json.dumps({"head": head, "scenes": [each.asJson() for each in results]}, indent=2) + "\n")
        new.replace(file)


def restore(file: Path, head: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """Return the scenes of a file by their names, without those in which ours was refused; none if there is no file.

    :raises ValueError: something else was measured than what the head says.
    """
    former = json.loads(file.read_text()) if file.exists() else {"head": {}, "scenes": []}
    changed = [
        name for name, value in former["head"].items() if name not in _CHANGING and head.get(name, value) != value
    ]
    if changed:
        raise ValueError(f"{file} cannot be resumed, for it has another value of: {', '.join(changed)}")
    return {each["scene"]: each for each in former["scenes"] if not any(OURS in broker for broker in each["refused"])}


def unmet(results: Sequence[Results], share: float = 1.0) -> list[Row]:
    """Return the rows that reach less than this share of their goal, and those whose goal cannot be judged."""
    return [row for each in results for row in each.rows() if row.goal and (row.share is None or row.share < share)]
