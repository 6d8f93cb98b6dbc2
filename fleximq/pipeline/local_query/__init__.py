"""Queries in SQL by DuckDB, in this process: over the journals of a machine and the tables of a lake, without Spark."""
