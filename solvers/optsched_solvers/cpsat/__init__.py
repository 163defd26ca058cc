"""."""
SOLVER = None
