"""Which rules of the protocol are load-bearing, shown on an executable model of one shard."""
