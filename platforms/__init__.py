"""platforms: see docs/architecture.md."""
