"""The broker's own checkers, one file each; docs/security.rst describes how to choose one."""
