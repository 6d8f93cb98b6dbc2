"""The options of ``--extension otel:`` and of ``[extension.otel]``."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from importlib.util import find_spec
from typing import Any

from fleximq.api import SettingError, readSeconds, readText

#: The module that each exporter requires.
_EXPORTERS = {"otlp": "opentelemetry.exporter.otlp.proto.http", "console": "opentelemetry.sdk"}


@dataclass(frozen=True, slots=True)
class Choices:
    """The settings of the traces; raises SettingError for an invalid value.

    ``endpoint`` is the address for ``otlp`` (None: from OpenTelemetry's environment variables), ``sample`` the traced
    share of publications without a trace context, ``service`` the name in the traces; ``pattern`` selects topics.
    """

    exporter: str = "otlp"
    endpoint: str | None = None
    sample: float = 0.0
    service: str = "fleximq"
    pattern: str = "#"

    def __post_init__(self) -> None:
        if self.exporter not in _EXPORTERS:
            raise SettingError(f"exporter is {self.exporter!r}, but must be one of {', '.join(_EXPORTERS)}")
        if self.endpoint is not None and not self.endpoint.startswith(("http://", "https://")):
            raise SettingError(f"endpoint is {self.endpoint!r}, but must begin with http:// or https://")
        if not 0 <= self.sample <= 1:
            raise SettingError(f"sample is {self.sample:g}, but must be between 0 and 1")
        if not self.service:
            raise SettingError("service is empty, but must be a name")
        if not self.pattern or len(self.pattern.encode()) > 1024:
            raise SettingError(f"pattern is {self.pattern!r}, but must be a topic or a pattern of them")


def configure(options: Mapping[str, object]) -> Choices:
    """Return the checked options; raises SettingError for wrong ones, and if OpenTelemetry is not installed."""
    known = [each.name for each in fields(Choices)]
    read: dict[str, Any] = {}
    for name, value in options.items():
        if name not in known:
            raise SettingError(f"there is no option {name}, only {', '.join(known)}")
        try:
            read[name] = readSeconds(name, value) if name == "sample" else readText(name, value)
        except SettingError:
            if name == "sample":
                raise SettingError(f"sample is {value!r}, but must be a number between 0 and 1") from None
            raise
    choices = Choices(**read)
    if not _isInstalled("opentelemetry.sdk") or not _isInstalled(_EXPORTERS[choices.exporter]):
        raise SettingError("OpenTelemetry is not installed: install FlexiMQ with its extra 'otel'")
    return choices


def _isInstalled(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False
