"""The option ``schema``: the schemas of topics."""

from fleximq.config.journal_options import checkPattern
from fleximq.errors import SettingError


def schemaOf(line: str) -> tuple[str, str]:
    """Parse ``PATTERN=FILE`` or ``PATTERN=FILE,MESSAGE``, and return the pattern and the rest; raises SettingError."""
    pattern, equals, file = line.partition("=")
    if not equals or not file.strip():
        raise SettingError(f"schema is {line!r}, but must be PATTERN=FILE, e.g. orders.#=/etc/fleximq/order.json")
    checkPattern("schema", line, pattern.strip())
    return pattern.strip(), file.strip()
