"""The commands of ``fleximq cluster`` for a cluster that runs."""
