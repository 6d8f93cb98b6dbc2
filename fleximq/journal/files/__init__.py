"""Files of a journal folder; open to pipeline and cli."""
