"""Plain HTTP: pages, metrics and the API."""
