"""The sample agent of the manifests: answers from a script, needs no key."""

from turnyard import App, tool


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


app = App()
app.agent("hello", model="scripted:hello.yaml", instructions="Be brief.", tools=[add])
