"""HTTP on a shared port."""
