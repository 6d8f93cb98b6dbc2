"""HTTP on a shared port: routing of requests, credentials and origins."""
