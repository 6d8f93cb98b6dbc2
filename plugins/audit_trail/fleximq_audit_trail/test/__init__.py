"""The tests of the audit trail."""
