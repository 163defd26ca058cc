"""Supervises one command of an attempt: `python -S -E shim.py FOLDER_OF_THE_NODE`.

A program of its own that outlives whoever started it. It does not import the package, for that
takes longer.
"""

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import supervisor
else:
    import supervisor

if __name__ == "__main__":
    supervisor.supervise(sys.argv[1])
