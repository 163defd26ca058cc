"""Round solvers that state the whole round as one program."""
