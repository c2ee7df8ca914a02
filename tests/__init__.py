"""The tests; run by `make test`."""
