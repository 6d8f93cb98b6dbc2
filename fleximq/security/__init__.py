"""Decides who may connect, as which principal, with which rights."""
