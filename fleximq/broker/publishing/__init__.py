"""From Broker.publish to the subscribers."""
