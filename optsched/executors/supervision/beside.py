"""What enters an attempt from outside: `python3 -S -E beside.py DIRECTORY MARK... -- COMMAND...`.

It becomes COMMAND in DIRECTORY, with the variables of the attempt's own command: of the oldest
process here that has all marks (`NAME=value`) among them.

Runs on nodes without the package (see `program`): standard library only, Python 3.10.
"""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from . import processes
else:
    import processes

TERMINAL = ("TERM", "COLORTERM", "LINES", "COLUMNS")
"""Variables of our own terminal."""


def variables(marks: "list[str]") -> "dict[str, str]":
    """Return those of the oldest process that has `marks`; where none is found, our own and
    these."""
    begun = map(processes.identity, processes.marked(*map(os.fsencode, marks)))
    for pid, _ in sorted(filter(None, begun), key=lambda process: process[1]):
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                entries = os.fsdecode(file.read()).split("\0")
        except OSError:
            continue
        own = {name: os.environ[name] for name in TERMINAL if name in os.environ}
        return dict(entry.split("=", 1) for entry in entries if "=" in entry) | own
    print("optsched: its command does not show its variables", file=sys.stderr, flush=True)
    return dict(os.environ) | dict(mark.split("=", 1) for mark in marks)


def main(directory: str, *words: str) -> str:
    """Become the command; return why that cannot be."""
    end = words.index("--")
    command, environment = words[end + 1 :], variables([*words[:end]])
    try:
        os.chdir(directory)
        os.execvpe(command[0], command, environment)
    except OSError as error:
        return f"optsched: {error.filename or command[0]}: {error.strerror}"


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
