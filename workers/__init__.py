"""Workers run turns: a supervisor without user code, and children that take, begin and commit."""
