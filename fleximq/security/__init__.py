"""Who may come, who they are, what they may do."""
