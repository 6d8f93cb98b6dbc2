"""The Identity dialect without its transport."""
