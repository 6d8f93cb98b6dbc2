"""Opening a journal folder; the command line may import this wing for ``repair``."""
