"""Helpers for testing agents and harnesses without a server and without waiting."""

from agentbatch.testing import virtual_clock
from agentbatch.testing.virtual_clock import ClockDeadlock, VirtualClockLoop

__all__ = ["ClockDeadlock", "VirtualClockLoop", "virtual_clock"]
