"""How fast it is, beside the floor and what others do, as ratios from one run."""
