"""What tests of agents need: models without a server, a clock that a test holds, and waiting without sleeping."""

from turnyard.testing.clock import ManualClock
from turnyard.testing.models import ModelCall, ScriptedModel, TestModel, call
from turnyard.testing.sample import sample
from turnyard.testing.waiting import wait_until

__all__ = ["ManualClock", "ModelCall", "ScriptedModel", "TestModel", "call", "sample", "wait_until"]
