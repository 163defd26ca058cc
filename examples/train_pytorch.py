"""A small network in PyTorch that can be stopped and goes on where it was.

    python examples/train_pytorch.py --steps 200 --checkpoints /tmp/pytorch

Send it SIGTERM and start it again: the loss it ends with is the same to the last bit, for the
optimizer's state and the random numbers are saved with the weights.
"""

import argparse
from pathlib import Path

import torch
from torch import nn

from optsched.training import Training

arguments = argparse.ArgumentParser(description="Trains an autoencoder; can be preempted.")
arguments.add_argument("--steps", type=int, default=200)
arguments.add_argument("--width", type=int, default=64)
arguments.add_argument(
    "--checkpoints", help="folder for checkpoints; $OPTSCHED_CHECKPOINT_DIR otherwise"
)
given = arguments.parse_args()

torch.manual_seed(0)
device = "cuda" if torch.cuda.is_available() else "cpu"
wide = 4 * given.width
model = nn.Sequential(nn.Linear(given.width, wide), nn.GELU(), nn.Linear(wide, given.width)).to(
    device
)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def save(path: Path) -> None:
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "random": torch.get_rng_state(),
    }
    torch.save(state, path)


def load(path: Path) -> None:
    state = torch.load(path, weights_only=True, map_location="cpu")
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    torch.set_rng_state(state["random"])


loss = torch.tensor(float("nan"))
training = Training(
    total_steps=given.steps, save=save, load=load, checkpoint_directory=given.checkpoints
)
for _step in training.steps():
    batch = torch.randn(64, given.width).to(device)
    loss = (model(batch) - batch).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()

print(f"loss {loss.item()!r}")
