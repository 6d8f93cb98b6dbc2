"""Draws the charts of docs/explanation/benchmarks.rst from the raw tables in docs/measurements.

``python -m benchmarks.charts`` writes them to docs/pictures. They are SVG files made of text, which one can read and
compare; a chart has a group of bars for each scene, with a scale of its own, since rates differ by a hundred times.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

DOCS = Path(__file__).parents[1] / "docs"

_COLORS = {
    "fleximq": "#2c5282",
    "fleximq-pure": "#6b93c0",
    "nats": "#dd8a3c",
    "jetstream": "#dd8a3c",
    "jetstream-sync": "#dd8a3c",
}
_OTHER_COLORS = ("#718096", "#a0aec0", "#cbd5e0")
_NAMES = {
    "fleximq": "FlexiMQ", "fleximq-pure": "FlexiMQ, pure Python", "nats": "NATS", "redis": "Redis",
    "mosquitto": "Mosquitto", "ws": "ws on node", "nchan": "nginx with nchan",
    "jetstream": "JetStream, before its sync", "jetstream-sync": "JetStream, synced", "parquet": "Spark's Parquet",
    "partitioned": "Spark, Parquet to Parquet",
}  # fmt: skip
_WIDTH, _BAR, _GAP, _LEFT, _RIGHT = 720, 16, 30, 200, 110


class Value(NamedTuple):
    """The median of one figure of one broker in one scene."""

    scene: str
    figure: str
    broker: str
    median: float


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: the table that it is drawn from, its title, and the scenes and figures that it shows, with labels."""

    name: str
    table: str
    title: str
    groups: Sequence[tuple[str, str, str]]


#: The last of each triple is the label of the group.
CHARTS = (
    Chart("chart_rates.svg", "brokers.txt", "Deliveries a second, messages of 100 bytes", (
        ("1 to 1, 100 B", "deliveries/s", "1 publisher, 1 subscriber"),
        ("1 to 10, 100 B", "deliveries/s", "1 publisher, 10 subscribers"),
        ("1 to 100, 100 B", "deliveries/s", "1 publisher, 100 subscribers"),
        ("4 to 4 (pairs), 100 B", "deliveries/s", "4 publishers, each with a subscriber"),
    )),
    Chart("chart_durable.svg", "journal.txt", "Durable messages a second", (
        ("Durable publications, confirmed, 1 connection, 100 B", "kept msg/s", "1 connection, 100 bytes"),
        ("Durable publications, confirmed, 1 connection, 1 KB", "kept msg/s", "1 connection, 1 KB"),
        ("Durable publications, 64 connections, each waits for every confirmation, 100 B", "kept msg/s",
         "64 connections, one at a time"),
    )),
    Chart("chart_pipeline.svg", "pipeline.txt", "Rows a second in Spark, rows of 100 bytes, local[2]", (
        ("All columns from a journal's folder, 2 M x 100 B, local[2]", "rows/s", "from a journal"),
        ("All columns from sealed history and the rest of the journal, 2 M x 100 B, local[2]", "rows/s",
         "from sealed history"),
        ("All columns through a broker, 2 M x 100 B, local[2]", "rows/s", "through a broker"),
        ("Catch-up of ingest to a lake, 2 M x 100 B, local[2]", "rows/s", "ingest to a lake"),
    )),
)  # fmt: skip


def values(table: str) -> Iterator[Value]:
    """Yield the medians of a raw table, as :func:`benchmarks.tables.page` writes it, without its head."""
    scene = ""
    for row in table.split("\n    * -")[2:]:
        cells = [cell.strip() for cell in re.split(r"\n      -", row)]
        scene = cells[0] or scene
        yield Value(scene, cells[1], cells[2], float(cells[3].replace(",", "")))


def draw(chart: Chart, table: str) -> str:
    """Return a chart as SVG.

    :raises LookupError: a scene of the chart is not in the table.
    """
    found = list(values(table))
    lines, top = [], 50
    for scene, figure, label in chart.groups:
        bars = [each for each in found if (each.scene, each.figure) == (scene, figure) and each.broker != "bare"]
        if not bars:
            raise LookupError(f"{scene!r} with {figure!r} is not in {chart.table}")
        lines.append(f'<text x="20" y="{top + 12}" class="label">{escape(label)}</text>')
        most = max(bar.median for bar in bars)
        others = iter(_OTHER_COLORS)
        for bar in bars:
            width = (_WIDTH - _LEFT - _RIGHT) * bar.median / most
            color = _COLORS.get(bar.broker) or next(others)
            top += _BAR + 8
            lines += [
                f'<text x="{_LEFT - 8}" y="{top + 12}" class="name">{escape(_NAMES[bar.broker])}</text>',
                f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_BAR}" fill="{color}"/>',
                f'<text x="{_LEFT + width + 6:.1f}" y="{top + 12}">{bar.median:,.0f}</text>',
            ]
        top += _GAP
    return "\n".join([*_head(chart.title, top), *lines, "</svg>", ""])


def _head(title: str, height: int) -> list[str]:
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" role="img"'
        ' font-family="system-ui, sans-serif" font-size="13" fill="#2d3748">',
        f"<title>{escape(title)}</title>",
        "<style>.label { font-weight: 600 } .name { text-anchor: end }</style>",
        f'<rect width="{_WIDTH}" height="{height}" rx="10" fill="#f4f6fa"/>',
        f'<text x="20" y="30" font-size="16" font-weight="600">{escape(title)}</text>',
    ]


def main() -> None:
    """Write all charts."""
    for chart in CHARTS:
        (DOCS / "pictures" / chart.name).write_text(draw(chart, (DOCS / "measurements" / chart.table).read_text()))


if __name__ == "__main__":
    main()
