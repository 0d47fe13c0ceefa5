"""Helpers for testing agents and harnesses without a server and without waiting."""

from agentbatch.testing import virtual_clock
from agentbatch.testing.scripted import Answer, Received, ScriptedServer
from agentbatch.testing.virtual_clock import ClockDeadlock, VirtualClockLoop

__all__ = ["Answer", "ClockDeadlock", "Received", "ScriptedServer", "VirtualClockLoop", "virtual_clock"]
