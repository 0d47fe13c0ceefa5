"""Hooks for the harnesses people run, one module per harness; none ships yet (CHANGELOG)."""
