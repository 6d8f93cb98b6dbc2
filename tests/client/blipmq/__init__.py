"""The BlipMQ client."""
