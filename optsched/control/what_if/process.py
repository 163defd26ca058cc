"""What if, in a process of its own: the controller's is never kept from its turns, and it ends when
its time is up."""

import os
import pickle
import subprocess
import sys

from ...duration import human
from ...errors import InputError, OptschedError
from ...native_output import own_stdout
from ..round_driver import NamedPolicy
from .future import Outlook
from .simulated import ROUNDS, Change, what_if
from .words import Foretold, Shown, told

TIME_LIMIT_S = 20.0
"""Wall clock for an answer; what is reached by then is told."""
GRACE_S = 20.0
"""So long after its time limit the process is ended: Python has to start, and a round is not
interrupted."""


class NoForecastError(OptschedError):
    """No answer came."""


def foretell(
    ahead: Outlook,
    change: Change,
    *,
    objective: str,
    policy: NamedPolicy = ROUNDS,
    time_limit_s: float = TIME_LIMIT_S,
    shown: Shown = None,
) -> Foretold:
    """Return what `what_if` answers, in words; computed beside this process at a low priority.

    Raises InputError as that, NoForecastError where no answer came.
    """
    settings = {"objective": objective, "policy": policy}
    request = ahead, change, {**settings, "time_limit_s": time_limit_s}, shown
    try:
        done = subprocess.run(
            [sys.executable, "-m", __name__],
            input=pickle.dumps(request, protocol=pickle.HIGHEST_PROTOCOL),
            capture_output=True,
            timeout=time_limit_s + GRACE_S,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoForecastError(
            f"no answer within {human(time_limit_s + GRACE_S)}; ask for a longer time limit"
        ) from None
    if done.returncode != 0:
        status = [f"status {done.returncode}"]
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:] or status
        raise NoForecastError(f"it could not be simulated: {last[0]}")
    answer = pickle.loads(done.stdout)  # from a child of this process, over a pipe of its own
    if isinstance(answer, Foretold):
        return answer
    kind, sentence = answer
    raise (InputError if kind == "input" else NoForecastError)(sentence)


def main() -> None:
    """Answer the one question on standard input."""
    os.nice(10)
    own_stdout()
    ahead, change, settings, shown = pickle.load(sys.stdin.buffer)
    reply: Foretold | tuple[str, str]
    try:
        reply = told(what_if(ahead, change, **settings), ahead.instance.now_s, shown)
    except InputError as error:
        reply = "input", str(error)
    except OptschedError as error:
        reply = "failed", str(error)
    sys.stdout.buffer.write(pickle.dumps(reply))


if __name__ == "__main__":
    main()
