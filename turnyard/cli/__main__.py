"""`python -m turnyard.cli`: the same as the `turnyard` command."""

from __future__ import annotations

from turnyard.cli.entry import main

if __name__ == "__main__":
    main()
