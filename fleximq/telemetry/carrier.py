"""The trace context that a publication brings along: W3C Trace Context in the header keys of a FlexiMQ PUB."""

from collections.abc import Mapping
from typing import Any

import msgpack

KEYS = ("traceparent", "tracestate")
_MARK = b"traceparent"


def contextIn(source: Any, body: Any) -> Mapping[str, str]:
    """Return what a run says of its trace, nothing if it says nothing.

    Only what comes as whole frames can: one search through its beginning tells most of those apart that say nothing.

    :param source: the envelope's, which knows how to read the body.
    """
    if not isinstance(body, bytes) or _MARK not in body or not hasattr(source, "run"):
        return {}
    headers = source.run(body).headers
    header = headers if isinstance(headers, bytes) else next(iter(headers), b"")
    try:
        fields = msgpack.unpackb(header, strict_map_key=False, timestamp=1) if header else {}
    except (ValueError, TypeError):
        return {}
    return {key: fields[key] for key in KEYS if isinstance(fields, dict) and isinstance(fields.get(key), str)}
