"""The reading half of the data source: options, start and end of a read, division among tasks, and the readers."""
