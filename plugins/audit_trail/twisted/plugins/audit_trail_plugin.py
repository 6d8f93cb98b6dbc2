"""Registers the extension. Twisted reads this file when it searches plug-ins, so it holds names only."""

from fleximq.api import Extension

auditTrail = Extension(
    "audit_trail",
    "Writes joins, leaves and publications to a file of JSON lines.",
    configure="fleximq_audit_trail.choices.configure",
    service="fleximq_audit_trail.service.AuditTrail",
)
