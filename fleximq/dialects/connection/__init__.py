"""The parts that every session is built on: detection, writing, limits, credentials."""
