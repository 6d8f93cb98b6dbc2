"""The files of lakes: one interface to all accesses, for folders of this machine."""
