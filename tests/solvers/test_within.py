"""Native calls: what they print, and what becomes of it."""

import subprocess
import sys

PROGRAM = """
import ctypes, os, sys
from optsched_solvers.native.within import within

def call():
    ctypes.CDLL(None).puts(b"a line of its own")
    os.write(1, b"and another\\n")
    return 7

print("before")
print(within(5.0, call))
"""


def test_what_a_native_solver_prints_goes_nowhere() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )
    assert (done.stdout, done.stderr) == ("before\n7\n", "")
