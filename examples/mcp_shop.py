"""An MCP server with two tools, as its author writes one with the SDK; `mcp_agent.py` starts it."""

from mcp.server import MCPServer

server = MCPServer("shop")


@server.tool()
def get_stock(part: str) -> str:
    """Say how many pieces of a part there are."""
    return f"7 pieces of {part}"


@server.tool()
def delete_everything() -> str:
    """Empty the shop."""
    return "gone"


if __name__ == "__main__":
    server.run("stdio")
