"""The dangerous interleavings as data, by topic."""
