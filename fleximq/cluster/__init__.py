"""One journal on several machines: the stream that orders it, its copies, and who owns it (/explanation/cluster)."""
