"""What happens next in a turn: pure decisions about entries, calls and messages. Nothing here knows a store."""
