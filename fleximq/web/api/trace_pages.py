"""The pages of traces: begin one of a client or a topic, read its lines, and end it. All of them are for admins."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Protocol

from fleximq.broker.paths.arguments import number, page, text
from fleximq.errors import BadRequest
from fleximq.limits import TOPIC_BYTES
from fleximq.rights import Action
from fleximq.web.api.answers import PAGED_BY_NUMBER, actPage
from fleximq.web.request import Argument, HttpReply, Page, PageRequest, jsonReply

#: The default number of lines and of seconds of a trace, and their maxima.
LINES, SECONDS, MOST_LINES, MOST_SECONDS = 200, 60, 1000, 600
_TRACE = Argument("trace", "The number of the trace.", "integer")


class ITrace(Protocol):
    """One trace; ``rows`` are its lines, numbered from 1."""

    rows: list[dict[str, Any]]

    def state(self) -> dict[str, Any]:
        """Return it without its lines."""


class ITraces(Protocol):
    """All traces; the methods raise BrokerError."""

    def list(self) -> Iterable[dict[str, Any]]:
        """Return the state of each."""

    def find(self, number: int) -> ITrace:
        """Return a trace."""

    def ofClient(self, clientId: int, limit: int, seconds: int, by: str) -> ITrace:
        """Begin a trace of a client."""

    def ofTopic(self, pattern: str, limit: int, seconds: int, by: str) -> ITrace:
        """Begin a trace of a topic, or of those that match a pattern."""

    def stop(self, number: int) -> ITrace:
        """End a trace."""


def tracePages(traces: ITraces) -> dict[str, Page]:
    """Return the pages by path."""
    reads: Callable[..., Page] = partial(Page, action=Action.ADMIN)
    return {
        "/api/traces": reads(partial(_list, traces), words="The traces that run, and those that have ended lately."),
        "/api/trace": reads(
            partial(_lines, traces),
            words="Lines of a trace by number: the frames of a client, or the publications to a topic, in words.",
            arguments=(_TRACE, *PAGED_BY_NUMBER),
        ),
        "/api/trace/start": actPage(
            partial(_start, traces),
            "Trace a client of this node, or the publications to a topic at this node, until it ends by itself.",
            (
                Argument("client_id", "The id of the client.", "integer"),
                Argument("topic", "In place of it, a topic or a pattern."),
                Argument("limit", f"The maximum number of lines, {LINES} by default, at most {MOST_LINES}.", "integer"),
                Argument("seconds", f"How long, {SECONDS} by default, at most {MOST_SECONDS}.", "integer"),
            ),
        ),
        "/api/trace/stop": actPage(partial(_stop, traces), "End a trace.", (_TRACE,)),
    }


async def _list(traces: ITraces, request: PageRequest) -> HttpReply:
    return jsonReply({"traces": [*traces.list()]})


async def _lines(traces: ITraces, request: PageRequest) -> HttpReply:
    trace = traces.find(number(request.arguments, "trace"))
    after, limit = page(request.arguments, int, 0)
    rows = trace.rows[after : after + limit]
    following = after + len(rows) if after + len(rows) < len(trace.rows) else None
    return jsonReply({**trace.state(), "lines": rows, "next": following})


async def _start(traces: ITraces, request: PageRequest) -> HttpReply:
    arguments = request.arguments
    limit = number(arguments, "limit", LINES, MOST_LINES, least=1)
    seconds = number(arguments, "seconds", SECONDS, MOST_SECONDS, least=1)
    if ("client_id" in arguments) == ("topic" in arguments):
        raise BadRequest("name either a 'client_id' or a 'topic'")
    if "topic" in arguments:
        trace = traces.ofTopic(text(arguments, "topic", TOPIC_BYTES), limit, seconds, request.who)
    else:
        trace = traces.ofClient(number(arguments, "client_id"), limit, seconds, request.who)
    return jsonReply(trace.state())


async def _stop(traces: ITraces, request: PageRequest) -> HttpReply:
    return jsonReply(traces.stop(number(request.arguments, "trace")).state())
