"""What nodes run, laid down on the file system that they share, so that they need nothing but
Python."""

import hashlib
import os
import shutil
from pathlib import Path

from . import supervision

SUPERVISION = [
    "beside",
    "cgroups",
    "command",
    "gang",
    "memory",
    "output",
    "processes",
    "records",
    "supervisor",
]
"""Files that supervise a command wherever it runs."""


def lay_down(folder: Path, *own: Path) -> Path:
    """Put `own` files and those beside which they run below `folder`, in a folder of its own for
    each version of them; where the last of them is.

    What runs goes on with the version it began with. Raises OSError.
    """
    there = Path(str(supervision.__file__)).parent
    sources = [*(there / f"{name}.py" for name in SUPERVISION), *own]
    version = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    made = folder / f"program-{version}"
    if not made.exists():
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o755)  # other users run it too
        unfinished = folder / f".program-{version}.{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir()
        for source in sources:
            shutil.copyfile(source, unfinished / source.name)
            (unfinished / source.name).chmod(0o644)
        unfinished.chmod(0o755)
        unfinished.rename(made)
    return made / own[-1].name
