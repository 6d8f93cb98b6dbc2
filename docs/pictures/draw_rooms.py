"""Draws the pictures of docs/architecture.rst: the rooms of fleximq/, and the path of one durable message.

``python docs/pictures/draw_rooms.py`` writes rooms.svg and way.svg beside this file. Which room imports which is read
from the table in tests/import_rules.py, and the wings of a room from its folders.
"""

import sys
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

PICTURES = Path(__file__).parent
ROOT = PICTURES.parents[1]
sys.path.insert(0, str(ROOT))

from tests.import_rules import MAY_IMPORT, STEPS, longest  # noqa: E402

#: The modules that one durable message passes, in this order, and what each does with it.
WAY = (
    ("dialects/connection/protocol_detection", "chooses the dialect by the first bytes"),
    ("dialects/stream", "passes the bytes of the connection on"),
    ("wire/fleximq_scanner", "splits them into runs of frames"),
    ("dialects/fleximq/read_loop", "checks rate and size, and finds the envelope"),
    ("dialects/fleximq/messages", "checks a new header and the rights of its PUB"),
    ("broker/broker", "the facade: publishes the run"),
    ("broker/publishing/publication_paths", "asks the guards, then holds the run until it is on disk"),
    ("journal/opened_journal", "the facade: accepts the run"),
    ("journal/writing/group_commit", "collects the runs of one commit"),
    ("journal/writing/writer_thread", "writes and syncs; reports back"),
    ("broker/publishing/publication_paths", "releases it in topic order to the routes of the topic"),
    ("broker/topics/topic_table", "renders once for each form of subscribers"),
    ("dialects/outbox", "buffers the output of a subscriber"),
    ("dialects/connection/write_turn", "writes once in a reactor turn"),
)

_COLORS = {"dialects": "#e3ebf9", "wire": "#e6f4ea", "broker": "#fdf0dc", "journal": "#f6e3ec"}
_STYLE = """  <style>
    .box { fill: #ffffff; stroke: #4a5568; stroke-width: 1.4 }
    .name { font-weight: 600; fill: #1a202c }
    .small { font-size: 11.5px; fill: #4a5568 }
    .arrow { stroke: #4a5568; stroke-width: 1.6; fill: none }
  </style>
  <defs>
    <marker id="a" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto-start-reverse">\
<path d="M0 0 10 5 0 10z" fill="#4a5568"/></marker>
  </defs>"""
_WIDTH = 800  # of rooms.svg
_LETTER = 6.2  # pixels, of a small letter, generously


def rooms() -> dict[str, frozenset[str]]:
    """Return each room and the other rooms that it, or a wing of it, may import."""
    found: dict[str, set[str]] = {}
    for name, allowed in MAY_IMPORT.items():
        found.setdefault(_room(name), set()).update(map(_room, allowed))
    return {room: frozenset(others - {room}) for room, others in found.items()}


def wings(room: str) -> list[str]:
    """Return the packages in a room: those of earlier steps first, then by name."""
    steps = STEPS.get(room, ())
    names = [path.parent.name for path in (ROOT / "fleximq" / room).glob("*/__init__.py")]
    return sorted(names, key=lambda name: (_step(f"{room}.{name}", steps), name))


def subrooms(room: str, wing: str) -> list[str]:
    """Return the packages in a wing, by name."""
    return sorted(path.parent.name for path in (ROOT / "fleximq" / room / wing).glob("*/__init__.py"))


def levels() -> list[list[str]]:
    """Return the rooms in rows: a room imports only rooms of earlier rows."""
    table = rooms()
    rows: list[list[str]] = []
    placed: set[str] = set()
    while placed != set(table):
        row = sorted(room for room in table if room not in placed and table[room] <= placed)
        if not row:
            raise ValueError(f"rooms import each other in a circle: {sorted(set(table) - placed)}")
        rows.append(row)
        placed.update(row)
    return rows


def nearest(room: str) -> list[str]:
    """Return the rooms that a room may import, without those that one of them may import too."""
    table = rooms()
    return sorted(each for each in table[room] if not any(each in table[other] for other in table[room]))


def _room(name: str) -> str:
    return name.split(".")[0]


def _step(name: str, steps: tuple[tuple[str, ...], ...]) -> int:
    prefix = longest(name, [each for step in steps for each in step])
    return next((number for number, step in enumerate(steps) if prefix in step), 0)


def pictures() -> dict[str, str]:
    """Return each picture as SVG, by the name of its file."""
    return {"rooms.svg": _drawnRooms(), "way.svg": _drawnWay()}


def _drawnRooms() -> str:
    rows = list(reversed(levels()))
    parts, top = [], 20
    for row in rows:
        boxes = [(room, _linesOf(room)) for room in row]
        height = 34 + 17 * max(len(lines) for _, lines in boxes)
        widths = [max(84, 26 + _LETTER * max([len(room) * 1.35, *map(len, lines)])) for room, lines in boxes]
        left = (_WIDTH - sum(widths) - 16 * (len(widths) - 1)) / 2
        for (room, lines), width in zip(boxes, widths, strict=True):
            parts.append(_box(left, top, width, height, room, lines, _COLORS.get(room, "#ffffff")))
            left += width + 16
        top += height + 16
    return _svg(_WIDTH, top + 4, "The rooms of fleximq", "Each room imports only rooms below it.", parts)


def _linesOf(room: str) -> list[str]:
    below = nearest(room)
    names = [wing + (f" ({', '.join(inner)})" if (inner := subrooms(room, wing)) else "") for wing in wings(room)]
    return [*_wrapped(names, 44), *([f"on {', '.join(below)}"] if below else [])]


def _wrapped(names: Iterable[str], most: int) -> list[str]:
    lines: list[str] = []
    for name in names:
        if lines and len(lines[-1]) + len(name) + 3 <= most:
            lines[-1] += f" · {name}"
        else:
            lines.append(name)
    return lines


def _drawnWay() -> str:
    parts, columns, width, height = [], 2, 320, 58
    places = []
    for number in range(len(WAY)):
        row, column = divmod(number, columns)
        column = columns - 1 - column if row % 2 else column
        places.append((20 + column * (width + 20), 20 + row * (height + 26)))
    for (left, top), (module, action) in zip(places, WAY, strict=True):
        room, name = module.split("/", 1)
        parts.append(_box(left, top, width, height, f"{room}/{name}", [action], _COLORS[room], 13))
    for (left, top), (toLeft, toTop) in zip(places, places[1:], strict=False):
        if toTop != top:
            path = f"M{left + width / 2:g} {top + height} V{toTop}"
        elif toLeft > left:
            path = f"M{left + width} {top + height / 2:g} H{toLeft}"
        else:
            path = f"M{left} {top + height / 2:g} H{toLeft + width}"
        parts.append(f'  <path class="arrow" d="{path}" marker-end="url(#a)"/>')
    described = "From the first module to the last: " + ", ".join(module for module, _ in WAY)
    return _svg(
        columns * (width + 20) + 20, places[-1][1] + height + 20, "The path of one durable message", described, parts
    )


def _box(
    left: float, top: float, width: float, height: float, name: str, lines: list[str], color: str, font: float = 14
) -> str:
    shape = f'x="{left:g}" y="{top:g}" width="{width:g}" height="{height:g}" rx="8"'
    texts = [f'<text class="name" font-size="{font:g}" x="{left + 12:g}" y="{top + 22:g}">{escape(name)}</text>']
    for number, line in enumerate(lines):
        texts.append(f'<text class="small" x="{left + 12:g}" y="{top + 41 + 17 * number:g}">{escape(line)}</text>')
    return f'  <rect class="box" {shape} style="fill: {color}"/>{"".join(texts)}'


def _svg(width: float, height: float, title: str, described: str, parts: list[str]) -> str:
    size = f"{width} {height:g}"
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size}" font-family="system-ui, sans-serif" '
    head += 'font-size="14" role="img" aria-labelledby="t d">'
    lines = [
        head,
        f'  <title id="t">{escape(title)}</title>',
        f'  <desc id="d">{escape(described)}</desc>',
        _STYLE,
        f'  <rect width="{width}" height="{height:g}" rx="12" fill="#f4f6fa"/>',
        *parts,
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    for name, text in pictures().items():
        (PICTURES / name).write_text(text)
