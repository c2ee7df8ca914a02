"""The demo of the README, from a checkout: the same as `turnyard demo`.

python examples/demo.py [--keep]

Its agent is turnyard/cli/demo/studio.py, its story turnyard/cli/demo/story.py.
"""

import sys

from turnyard.cli.entry import run

if __name__ == "__main__":
    sys.exit(run(["demo", *sys.argv[1:]]))
