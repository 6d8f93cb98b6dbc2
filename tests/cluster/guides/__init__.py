"""The guides of a cluster, whose commands are run as they are written, on machines in namespaces."""
