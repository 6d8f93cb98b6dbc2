"""One attack for each limit: the broker keeps within its memory, and serves those beside as before."""
