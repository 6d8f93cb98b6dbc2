"""The table of all routes of plain HTTP."""

from fleximq.dialects.http import publishing
from fleximq.dialects.http.routes import Route, Routes

_BODIES = ("application/json", "application/x-ndjson", "text/plain", "application/msgpack", "application/octet-stream")
_STORED = {
    200: "It was delivered; on a durable topic it is on disk, and the answer has its offset.",
    503: "It cannot be stored now: a queue is full, or the journal is read-only.",
}

ROUTES = Routes(
    (
        Route(
            "POST", "topics", "topic", publishing.publish, "Publishes the body to a topic.", "publish",
            parameters=publishing.PARAMETERS, takes=_BODIES, answers=_STORED,
        ),
        Route(
            "POST", "queues", "queue", publishing.enqueue,
            "Puts the body into a work queue, which is made if there is none.", "publish",
            parameters=publishing.PARAMETERS, takes=_BODIES, answers=_STORED,
        ),
    )
)  # fmt: skip
