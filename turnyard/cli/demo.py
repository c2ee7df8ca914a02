"""placeholder"""


def demo() -> None:
    """Show everything at once: an agent without a key, a lifted tool, a late result, a worker killed on purpose."""
