"""Installing the broker where nothing is installed: the steps of the Dockerfile, and the Debian package."""
