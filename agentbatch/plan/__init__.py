"""Limits and cache ratio from a user's own traces."""
