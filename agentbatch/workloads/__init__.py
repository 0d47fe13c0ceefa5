"""Seeded workloads matched to published aggregates (spec §9), as traces."""
