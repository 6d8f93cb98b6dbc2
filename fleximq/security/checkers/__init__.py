"""The broker's own checkers, one file each; docs/guides/security.rst describes how to choose one."""
