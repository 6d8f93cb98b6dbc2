"""Spans of OpenTelemetry for what is published, committed and delivered: the extension ``otel``."""
