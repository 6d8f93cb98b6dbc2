"""The trace context in the header of a publication: its keys ``traceparent`` and ``tracestate`` (W3C Trace Context)."""

from collections.abc import Mapping

import msgpack

KEYS = ("traceparent", "tracestate")
MARK = b"traceparent"


def contextOf(header: bytes) -> Mapping[str, str]:
    """Return the trace context in a header, a MessagePack map or no bytes; empty without one."""
    if MARK not in header:
        return {}
    try:
        fields = msgpack.unpackb(header, timestamp=1)
    except (ValueError, TypeError):
        return {}
    return {key: fields[key] for key in KEYS if isinstance(fields, dict) and isinstance(fields.get(key), str)}
