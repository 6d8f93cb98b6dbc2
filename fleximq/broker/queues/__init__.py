"""One queue, in memory or durable."""
