"""dispatcher: see docs/architecture.md."""
