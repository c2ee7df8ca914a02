"""An agent on an OpenAI-compatible server, tried against `llmock`, which speaks that wire without a key or network.

pip install llmock
llmock serve --port 4011 &
OPENAI_BASE_URL=http://127.0.0.1:4011/v1 turnyard up examples/llmock_agent.py:app
turnyard submit weather "What is the weather in Paris?" --wait

Take OPENAI_BASE_URL away and set OPENAI_API_KEY, and the same agent runs on OpenAI.
"""

from turnyard import App, tool


@tool
async def get_weather(city: str) -> str:
    """Get the current weather of a city.

    Args:
        city: the city's name.
    """
    return f"21 °C and sunny in {city}"


app = App()
weather = app.agent("weather", model="openai:gpt-4o-mini", instructions="Answer in one sentence.", tools=[get_weather])
