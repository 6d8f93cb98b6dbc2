"""Times as people write them: ISO 8601, with the zone."""

from datetime import datetime


def zonedTime(text: str) -> datetime | None:
    """Return the time that a text in ISO 8601 names; None if it names none, or has no zone."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return None if found.tzinfo is None else found
