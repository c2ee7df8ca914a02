"""Tools: how a Python function becomes something a model may call, and how such a call is run."""

from turnyard.tools.approval import ApprovalRequired, Ask, Deny
from turnyard.tools.context import CallUrls, ToolContext
from turnyard.tools.detailed import Detailed
from turnyard.tools.pack import Pack
from turnyard.tools.park import Park
from turnyard.tools.runtime import ToolOutcome, run_tool
from turnyard.tools.secrets import Secret, secret
from turnyard.tools.tool import Tool, tool

__all__ = [
    "ApprovalRequired",
    "Ask",
    "CallUrls",
    "Deny",
    "Detailed",
    "Pack",
    "Park",
    "Secret",
    "Tool",
    "ToolContext",
    "ToolOutcome",
    "run_tool",
    "secret",
    "tool",
]
