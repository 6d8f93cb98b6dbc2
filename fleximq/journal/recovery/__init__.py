"""Opening a folder; cli may use it for `repair`."""
