"""A job that counts: each step is a line `STEP ATTEMPT PID TIME` in LOG; it saves and stops when it
is asked to.

`python -S counting_job.py LOG STEPS SECONDS_A_STEP`. A lock on LOG's neighbour is held all the
while: an attempt that finds it taken writes OVERLAP, as another one of the same job runs. On
several nodes the first counts, the others wait.
"""

import fcntl
import os
import signal
import sys
import time

log, steps, step_s = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
asked: list[int] = []
for number in (signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, lambda *_: asked.append(1))
attempt, saved = (
    os.environ["OPTSCHED_ATTEMPT"],
    os.path.join(os.environ["OPTSCHED_CHECKPOINT_DIR"], "step"),
)


def saved_step() -> int:
    """Return the step in the checkpoint."""
    try:
        with open(saved) as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def tell(text: str) -> None:
    """Write a line."""
    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(out, (text + "\n").encode())
    os.close(out)


if os.environ["OPTSCHED_NODE_RANK"] != "0":
    while saved_step() < steps and not asked:
        time.sleep(0.05)
    sys.exit(0 if saved_step() == steps else 85)
lock = os.open(log + ".lock", os.O_RDWR | os.O_CREAT, 0o600)
try:
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
except OSError:
    tell(f"OVERLAP {attempt}")
    sys.exit(1)
step = saved_step()
while step < steps and not asked:
    time.sleep(step_s)
    step += 1
    tell(f"{step} {attempt} {os.getpid()} {time.time():.3f}")
with open(saved + ".new", "w") as file:
    file.write(str(step))
    file.flush()
    os.fsync(file.fileno())
os.rename(saved + ".new", saved)
tell(f"SAVED {step} {attempt}")
sys.exit(0 if step == steps else 85)
