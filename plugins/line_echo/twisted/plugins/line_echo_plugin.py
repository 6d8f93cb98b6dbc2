"""Registers the dialect. Twisted reads this file when it searches plug-ins, so it holds names only."""

from fleximq.api import Dialect

lineEcho = Dialect(
    "line_echo",
    stream="fleximq_line_echo.dialect.LineFactory",
    beginnings=[b"+"],
    title="Line echo",
    purpose="lines of text, for people with netcat",
    reach="{stream}, e.g. with netcat: +topic",
)
