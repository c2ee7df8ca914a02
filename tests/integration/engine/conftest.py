"""A server for the tests of this directory."""

from tests.servers import clean, redis_client, redis_url

__all__ = ["clean", "redis_client", "redis_url"]
