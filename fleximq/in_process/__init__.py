"""Clients inside the broker's process, for extensions and for programs that embed a broker."""
