"""What tests of agents need: models without a server, a clock that a test holds, and waiting without sleeping."""

from turnyard.testing.clock import ManualClock
from turnyard.testing.models import FunctionModel, ModelCall, Reply, ScriptedModel, TestModel, call, say
from turnyard.testing.sample import sample
from turnyard.testing.waiting import wait_until

__all__ = ["FunctionModel", "ManualClock", "ModelCall", "Reply", "ScriptedModel", "TestModel", "call", "sample", "say", "wait_until"]
