"""What an operator writes, as frozen values."""
