"""What a user's module declares: an app, its agents, their tools and limits; and how such a module is loaded."""

from turnyard.app.agent import Agent, TurnContext
from turnyard.app.application import App
from turnyard.app.hooks import Stopping
from turnyard.app.limits import Limits
from turnyard.app.loading import load_app

__all__ = ["Agent", "App", "Limits", "Stopping", "TurnContext", "load_app"]
