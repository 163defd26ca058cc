"""Which commands run the same program, and under which name their profile is kept."""

import hashlib
import os
import re
import shlex

from ..estimates.commands import similar

RUNNERS = re.compile(
    r"python[0-9.]*|torchrun|accelerate|deepspeed|srun|mpirun|env|bash|sh|nice|nohup|time|uv|launch|run"
)


def program(command: str) -> str | None:
    """Return the script, module or program that a command line runs, whatever runs it: `train.py`
    of `env A=1 python -u train.py --lr 1`; None where that cannot be told."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    for i, word in enumerate(words):
        if word.endswith((".py", ".sh")):
            return os.path.basename(word)
        if word == "-m" and i + 1 < len(words):
            return words[i + 1]
    plain = (word for word in words if not word.startswith("-") and "=" not in word)
    return next(
        (name for word in plain if not RUNNERS.fullmatch(name := os.path.basename(word))), None
    )


def name_of(user: str | None, command: str) -> str:
    """Return the name under which runs of a user's command are kept in a store: those of commands
    that differ in numbers, dates and hashes only (seeds, folders of results) share it. Readable
    first, unique by the hash at the end."""
    known = f"{user}\n{similar(command) or command}"
    words = (
        re.sub(r"[^A-Za-z0-9]+", "-", word).strip("-")[:30]
        for word in (user or "", program(command) or "")
    )
    return "-".join((*filter(None, words), hashlib.sha256(known.encode()).hexdigest()[:10]))
