"""Tools that come with Turnyard. An agent has those that it is given, and no others."""

from turnyard.tools.builtin.asking import ask_user
from turnyard.tools.builtin.http import http_request
from turnyard.tools.builtin.messages import send_message
from turnyard.tools.builtin.sleeping import sleep

__all__ = ["ask_user", "http_request", "send_message", "sleep"]
