"""The embedded engine: SGLang workers modelled by `agentbatch.sim`, served over HTTP on scaled wall time."""

from agentbatch.emulator.child import Spawned, spawn
from agentbatch.emulator.script import Reply, Script, ToolCall, load_script
from agentbatch.emulator.server import Emulator, serve
from agentbatch.emulator.settings import Settings
from agentbatch.emulator.template import MESSAGE_TOKENS, REPLY_HEADER_TOKENS

__all__ = [
    "MESSAGE_TOKENS",
    "REPLY_HEADER_TOKENS",
    "Emulator",
    "Reply",
    "Script",
    "Settings",
    "Spawned",
    "ToolCall",
    "load_script",
    "serve",
    "spawn",
]
