"""The command line of twistd, checked before ports and files are opened."""
