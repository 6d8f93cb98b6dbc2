"""FlexiMQ's own extensions. Twisted reads this file whenever it looks for plug-ins: names only."""

from fleximq.plugin import Extension

otel = Extension(
    "otel",
    "Gives spans of OpenTelemetry for what is published, committed and delivered.",
    configure="fleximq.telemetry.choices.configure",
    service="fleximq.telemetry.service.TelemetryService",
)
