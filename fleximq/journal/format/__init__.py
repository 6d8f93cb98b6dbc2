"""Bytes of frames, pure; open to pipeline and cli."""
