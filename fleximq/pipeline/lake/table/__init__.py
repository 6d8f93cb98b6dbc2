"""One table: names, columns, files."""
