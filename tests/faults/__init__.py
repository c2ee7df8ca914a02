"""Faults on purpose: what stands between processes and their server, and what must hold afterwards."""
