"""What a user's module declares: an app, its agents, their tools and limits; and how such a module is loaded."""

from turnyard.app.agent import Agent, TurnContext
from turnyard.app.application import App
from turnyard.app.hooks import Asking, Result, Stopping
from turnyard.app.limits import Limits
from turnyard.app.loading import load_app
from turnyard.app.policies import ToolCall

__all__ = ["Agent", "App", "Asking", "Limits", "Result", "Stopping", "ToolCall", "TurnContext", "load_app"]
