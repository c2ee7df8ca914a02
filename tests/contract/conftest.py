"""Scenes for the tests of what the store promises its readers."""

from tests.protocol.conftest import scene, three_shards

__all__ = ["scene", "three_shards"]
