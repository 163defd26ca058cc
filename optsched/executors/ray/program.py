"""What nodes of Ray run."""

from pathlib import Path

from .. import program

OURS = ("entry", "supervising")


def lay_down(folder: Path) -> Path:
    """Put the program below `folder`; its entry. Raises OSError."""
    here = Path(__file__).parent
    return program.lay_down(folder, [here / f"{name}.py" for name in OURS]) / "entry.py"
