"""MCP servers as sources of tools. Importing this does not import the SDK: that happens when the first connection is made."""

from turnyard.tools.mcp.provider import MCP

__all__ = ["MCP"]
