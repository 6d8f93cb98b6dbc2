"""The table of all routes of plain HTTP."""

from fleximq.dialects.http.format.routes import Route, Routes
from fleximq.dialects.http.operations import publishing, requesting, scheduling, streaming, taking

_BODIES = ("application/json", "application/x-ndjson", "text/plain", "application/msgpack", "application/octet-stream")
_STORED = {
    200: "It was delivered; on a durable topic it is on disk, and the answer has its offset. Messages that wait for"
    " their time have ids, in schedules.",
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
        Route(
            "POST", "queues", ("queue",), taking.take,
            "Takes jobs of a work queue for the principal of the request.", "consume", "take",
            parameters=taking.TAKE_PARAMETERS,
            answers={
                200: "The jobs, none if there was none in time.",
                404: "There is no such queue; create=true makes it.",
                429: "The principal has too many unsettled jobs or waiting requests.",
            },
        ),
        Route(
            "POST", "queues", ("queue",), taking.settle, "Settles jobs that the principal of the request has taken.",
            "consume", "settle", takes=("application/json",),
            answers={200: "All is done, and on disk, except for the tags in unsettled: these are not the principal's."},
        ),
        Route(
            "DELETE", "schedules", ("id",), scheduling.cancel, "Cancels a message that waits for its time.", "publish",
            answers={200: "Whether it waited, as cancelled; then it is gone, also on disk."},
        ),
        Route(
            "GET", "topics", ("topic",), streaming.read,
            "Reads the messages of a topic or pattern: as Server-Sent Events, or as an object in JSON on each line.",
            "subscribe", parameters=streaming.PARAMETERS,
            answers={
                200: "The messages, until the client or the broker ends the answer.",
                404: "Messages from this offset on are not in the journal any more.",
                422: "The topic is not durable, so that it has no past messages.",
            },
        ),
    )
)  # fmt: skip
