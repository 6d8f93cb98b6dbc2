"""The dialect without its transport."""
