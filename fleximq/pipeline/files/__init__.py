"""A journal's folder, read from outside into Arrow columns, without Spark."""
