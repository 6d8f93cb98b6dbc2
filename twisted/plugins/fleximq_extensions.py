"""The extensions of FlexiMQ. Twisted reads this file when it searches plug-ins, so it holds names only."""

from fleximq.plugin import Extension

otel = Extension(
    "otel",
    "Gives spans of OpenTelemetry for what is published, committed and delivered.",
    configure="fleximq.telemetry.choices.configure",
    service="fleximq.telemetry.service.TelemetryService",
)
