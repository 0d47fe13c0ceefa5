"""Pure decisions: stdlib only; no I/O, clock, randomness or globals."""
