"""Kills of everything that feeds and maintains a lake, on local disks and on an object store."""
