"""workers: see docs/architecture.md."""
