"""The operator's configuration, as frozen values."""
