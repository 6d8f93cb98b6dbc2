"""The dialects that the Autobahn test suite talks to."""

from fleximq.plugin import Dialect

text = Dialect("echo_text", webSocket="tests.autobahn.echo.TextEchoFactory")
binary = Dialect("echo_binary", webSocket="tests.autobahn.echo.BinaryEchoFactory")
