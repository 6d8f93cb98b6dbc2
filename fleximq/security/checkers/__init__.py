"""The checkers that the broker brings along, one file each; docs/security.rst says how they are chosen."""
