"""The journal: stores durable publications and the state of queues."""
