"""What nodes run, laid down on the shared file system, so that they need nothing but Ray and its Python."""

import hashlib
import os
import shutil
from pathlib import Path

from .. import local

LOCAL = ("cgroups", "command", "memory", "processes", "records", "supervisor")
OURS = ("entry", "supervising")


def lay_down(folder: Path) -> Path:
    """Put the program below `folder`, under a name of its own for each version of it; its entry. Raises OSError.

    What runs goes on with the version it began with.
    """
    there, here = Path(str(local.__file__)).parent, Path(__file__).parent
    sources = [there / f"{name}.py" for name in LOCAL] + [here / f"{name}.py" for name in OURS]
    version = hashlib.sha256(b"\0".join(source.read_bytes() for source in sources)).hexdigest()[:12]
    made = folder / f"program-{version}"
    if not made.exists():
        unfinished = folder / f".program-{version}.{os.getpid()}"
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True, mode=0o755)
        for source in sources:
            shutil.copyfile(source, unfinished / source.name)
        unfinished.rename(made)
    return made / "entry.py"
