"""Plain HTTP on a shared port: sessions of requests that are answered by a table of routes."""
