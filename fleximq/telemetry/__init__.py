"""The extension ``otel``: OpenTelemetry spans of publications, commits and deliveries."""
