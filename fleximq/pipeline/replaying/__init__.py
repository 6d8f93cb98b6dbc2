"""What a replay reads, in which rhythm it publishes, and how it goes on after a crash."""
