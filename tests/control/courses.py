"""What if, answered in this process, one course after the other."""

from optsched.control.round_driver import NamedPolicy
from optsched.control.what_if.future import Outlook
from optsched.control.what_if.simulated import (
    ROUNDS,
    Answer,
    Change,
    compared,
    courses_of,
    refuse,
    seen_of,
)


def what_if(
    ahead: Outlook,
    change: Change,
    *,
    objective: str = "wct",
    policy: NamedPolicy = ROUNDS,
    time_limit_s: float = 20.0,
) -> Answer:
    """Return what `foretell` puts in words, without processes beside this one."""
    refuse(ahead, change)
    asked = courses_of(change)
    limit_s = time_limit_s / len(asked)
    seen = [seen_of(ahead, own, objective, policy, limit_s) for own in asked]
    return compared(ahead, change, seen, policy)
