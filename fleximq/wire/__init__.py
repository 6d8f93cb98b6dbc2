"""Bytes to values and back, for all four dialects. Pure: the standard library and msgpack, no Twisted, no I/O."""
