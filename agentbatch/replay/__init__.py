"""Controlled replay of recorded trajectories against a live server (spec §7)."""
