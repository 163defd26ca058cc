"""What the jobs of a request are called and run: names, arrays and commands."""

import re
import shlex
from pathlib import PurePosixPath

from ...executors.base import JOB_NAME
from .bodies import MOST_JOBS
from .refusal import HttpError

MOST_COMMAND = 1000
"""Characters of the command line that are kept as the job's `command`."""
INTERPRETER = re.compile(r"(?:python|pypy|perl|ruby|node|bash|sh|zsh|env|torchrun|Rscript)[0-9.]*")


def read_array(text: str | None) -> tuple[list[int], int | None]:
    """Return the indices of an array, and how many tasks may run at once; index 0 alone for what is
    no array. Raises HttpError 422."""
    if text is None:
        return [0], None
    listed, _, most = text.partition("%")
    if most and not int(most):
        raise HttpError(422, "array: 0 tasks at once would never run; write another number")
    indices: dict[int, None] = {}
    for part in listed.split(","):
        ends, _, step = part.partition(":")
        first, _, last = ends.partition("-")
        numbers = range(int(first), int(last or first) + 1, int(step or 1) or MOST_JOBS)
        if not numbers or (step and not int(step)):
            raise HttpError(422, f"array: {part} holds no index; write FIRST-LAST:STEP")
        if len(indices) + len(numbers) > MOST_JOBS:
            raise HttpError(422, f"array: more than {MOST_JOBS:,} tasks; split it")
        indices |= dict.fromkeys(numbers)
    return [*indices], int(most) if most else None


def argv_of(argv: tuple[str, ...], index: int | None) -> tuple[str, ...]:
    """Return the command of one task."""
    return argv if index is None else tuple(word.replace("{index}", str(index)) for word in argv)


def command_of(argv: tuple[str, ...]) -> str:
    """Return its text, as far as it is kept."""
    return shlex.join(argv)[:MOST_COMMAND]


def stem_of(argv: tuple[str, ...]) -> str:
    """Return what a job without a name is called after: the script where an interpreter runs one,
    else the command."""
    words = [PurePosixPath(word).name for word in argv]
    stem = words[0]
    if INTERPRETER.fullmatch(stem) and len(words) > 1 and not argv[1].startswith("-"):
        stem = words[1]
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", stem.rpartition(".")[0] or stem)
    stem = stem.strip("-_")[:48].rstrip("-_")
    return stem if JOB_NAME.fullmatch(stem) else "job"
