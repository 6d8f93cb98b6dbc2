"""The command line of twistd, checked before anything opens."""
