"""The console's pages in a real browser, on a real broker under load."""
