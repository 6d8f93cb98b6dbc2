"""The operating system process: signals, log, child processes and the service manager."""
