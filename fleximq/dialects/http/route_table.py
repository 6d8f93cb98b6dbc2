"""The table of all routes of plain HTTP."""

from fleximq.dialects.http import publishing, requesting
from fleximq.dialects.http.routes import Route, Routes

_BODIES = ("application/json", "application/x-ndjson", "text/plain", "application/msgpack", "application/octet-stream")
_STORED = {
    200: "It was delivered; on a durable topic it is on disk, and the answer has its offset.",
    503: "It cannot be stored now: a queue is full, or the journal is read-only.",
}

ROUTES = Routes(
    (
        Route(
            "POST", "topics", ("topic",), publishing.publish, "Publishes the body to a topic.", "publish",
            parameters=publishing.PARAMETERS, takes=_BODIES, answers=_STORED,
        ),
        Route(
            "POST", "queues", ("queue",), publishing.enqueue,
            "Puts the body into a work queue, which is made if there is none.", "publish",
            parameters=publishing.PARAMETERS, takes=_BODIES, answers=_STORED,
        ),
        Route(
            "POST", "request", ("target", "path"), requesting.ask,
            "Asks a client, by its id or by the name of a service, and returns its answer.", "request",
            parameters=requesting.PARAMETERS,
            takes=("application/json", "text/plain", "application/msgpack", "application/octet-stream"),
            answers={
                200: "The value of the answer.",
                502: "The client left before it answered, or its answer cannot be shown.",
                504: "No answer in time.",
            },
        ),
    )
)  # fmt: skip
