"""A job of the demonstration: steps that sleep, saving and loading that take as long as they are
told.

`python training_job.py STEPS STEP_S SAVE_S LOAD_S`; it runs by its path, beside `training.py` of
the package.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from training import Training  # type: ignore[import-not-found]


def main() -> None:
    """Train: each step adds its number to a sum, which is what is saved."""
    steps, step_s, save_s, load_s = int(sys.argv[1]), *(float(word) for word in sys.argv[2:5])
    total = 0

    def save(path: Path) -> None:
        time.sleep(save_s)
        path.write_text(str(total))

    def load(path: Path) -> None:
        nonlocal total
        time.sleep(load_s)
        total = int(path.read_text())

    training = Training(total_steps=steps, save=save, load=load)
    for step in training.steps():
        time.sleep(step_s)
        total += step
    print(f"sum of {steps} steps: {total}")


if __name__ == "__main__":
    main()
