"""The operations of plain HTTP: publish, enqueue, take, settle, ask, and read."""
