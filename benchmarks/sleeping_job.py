"""A training job that sleeps: `python -S sleeping_job.py FOLDER NAME DURATION_S SAVE_S RESTORE_S`.

It saves when it gets SIGTERM, exits with 85, and goes on from there when it is started again; with
a negative SAVE_S it cannot save, and begins anew. FOLDER/NAME.log tells when it held its GPUs, and
FOLDER/NAME.step how many seconds of training are saved.
"""

import json
import os
import signal
import sys
import time


def main() -> None:
    """Train, from what is saved to the end."""
    folder, name, duration, save, restore = sys.argv[1:]
    if os.environ.get("OPTSCHED_NODE_RANK", "0") != "0":
        follow(f"{folder}/{name}.log")
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))

    def tell(what: str) -> None:
        line = json.dumps({"what": what, "at_s": time.time(), "done_s": done_s}) + "\n"
        with open(f"{folder}/{name}.log", "a") as log:
            log.write(line)

    done_s = 0.0
    if os.path.exists(f"{folder}/{name}.step"):
        with open(f"{folder}/{name}.step") as saved:
            done_s = float(saved.read())
    tell("began")
    if done_s:
        time.sleep(float(restore))
    began_s = time.monotonic() - done_s
    while not asked and time.monotonic() - began_s < float(duration):
        time.sleep(min(0.05, max(0.0, float(duration) - (time.monotonic() - began_s))))
    done_s = min(float(duration), time.monotonic() - began_s)
    if done_s >= float(duration):
        tell("ended")
        return
    if float(save) < 0:
        tell("killed")
        sys.exit(143)
    time.sleep(float(save))
    with open(f"{folder}/{name}.new", "w") as saved:
        saved.write(str(done_s))
    os.rename(f"{folder}/{name}.new", f"{folder}/{name}.step")
    tell("saved")
    sys.exit(85)


def follow(log: str) -> None:
    """Another rank of a gang: it ends when the first does."""
    asked: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, frame: asked.append(number))
    while not asked:
        time.sleep(0.1)
        if os.path.exists(log):
            with open(log) as text:
                if '"ended"' in text.read():
                    sys.exit(0)
    sys.exit(85)


if __name__ == "__main__":
    main()
