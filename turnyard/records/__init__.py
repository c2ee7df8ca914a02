"""The shared language: frozen types that cross boundaries. Nothing here does I/O."""
