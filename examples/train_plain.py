"""Least squares by stochastic gradient descent, without libraries, that can be stopped and goes on
where it was.

    python examples/train_plain.py --steps 2000 --checkpoints /tmp/plain

Send it SIGTERM and start it again: the weights it ends with are the same to the last bit.
"""

import argparse
import json
import random
import time
from pathlib import Path

from optsched.training import Training

arguments = argparse.ArgumentParser(description="Trains a line; can be preempted.")
arguments.add_argument("--steps", type=int, default=2000)
arguments.add_argument(
    "--step-s", type=float, default=0.0, help="seconds each step takes on top of its work"
)
arguments.add_argument(
    "--checkpoints", help="folder for checkpoints; $OPTSCHED_CHECKPOINT_DIR otherwise"
)
given = arguments.parse_args()

weights = [0.0, 0.0]
numbers = random.Random(0)


def save(path: Path) -> None:
    version, internal, gauss = numbers.getstate()
    path.write_text(json.dumps({"weights": weights, "random": [version, list(internal), gauss]}))


def load(path: Path) -> None:
    state = json.loads(path.read_text())
    weights[:] = state["weights"]
    version, internal, gauss = state["random"]
    numbers.setstate((version, tuple(internal), gauss))


training = Training(
    total_steps=given.steps, save=save, load=load, checkpoint_directory=given.checkpoints
)
for _step in training.steps():
    x = numbers.uniform(-1, 1)
    error = weights[0] + weights[1] * x - (3 - 2 * x + numbers.gauss(0, 0.1))
    weights[0] -= 0.05 * error
    weights[1] -= 0.05 * error * x
    time.sleep(given.step_s)

print(f"weights {weights!r}")
