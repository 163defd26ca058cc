"""Check that what calls itself a plan is one: plain types throughout, as the verifier and plan
files need."""

from typing import Any

from .instance import Slot
from .job import Mode
from .plan import JobPlan, Plan, Segment
from .value import Table

NUMBER = (float, int)
NOTHING = type(None)

FIELDS: dict[type, dict[str, tuple[type, ...]]] = {
    Plan: {"jobs": (tuple,)},
    JobPlan: {"id": (str,), "decision": (str,), "segments": (tuple,)},
    Segment: {"start_s": NUMBER, "end_s": NUMBER, "mode": (Mode,), "placement": (tuple,)},
    Slot: {"node": (str,), "gpus": (int,), "cpus": (int,)},
    Mode: {
        "duration_s": (*NUMBER, NOTHING),
        "gpu_type": (str, NOTHING),
        "gpus": (int,),
        "cpus_per_gpu": (int,),
        "cpus": (int,),
        "share_with": (str, NOTHING),
        "shared_gpus": (Table,),
        "clock_mhz": (int, NOTHING),
        "memory_gib_per_gpu": (*NUMBER, NOTHING),
        "gpu_memory_gib": (*NUMBER, NOTHING),
        "resources": (Table,),
        "budgets": (Table,),
    },
}
"""The types each field may have, exactly: a numpy number is none of them, as no JSON can be written
of it."""

INSIDE = {"jobs": JobPlan, "segments": Segment, "placement": Slot}
"""What the tuple of that name holds."""


def malformed(plan: object) -> str | None:
    """Return what in `plan` has not the type it must have, as a clause, or None. Never raises."""
    return _wrong(plan, Plan, "the plan")


def _wrong(value: object, expected: type, what: str) -> str | None:
    if type(value) is not expected:
        return f"{what} is {_called(value)}, not {expected.__name__}"
    for name, allowed in FIELDS[expected].items():
        inner: Any = getattr(value, name, ...)
        fault = None
        if type(inner) not in allowed:
            fault = f"{name} of {what} is {_called(inner)}, not {allowed[0].__name__}"
        elif isinstance(inner, Mode):
            fault = _wrong(inner, Mode, f"the mode of {what}")
        elif isinstance(inner, dict):
            wrong = [v for k, v in inner.items() if type(k) is not str or type(v) not in NUMBER]
            fault = (
                f"{name} of {what} holds {_called(wrong[0])}, not a number by name"
                if wrong
                else None
            )
        elif name in INSIDE:
            owner = f"job {getattr(value, 'id', '')}" if expected is JobPlan else what
            faults = (
                _wrong(part, INSIDE[name], f"{name}[{i}] of {owner}")
                for i, part in enumerate(inner)
            )
            fault = next((fault for fault in faults if fault is not None), None)
        if fault is not None:
            return fault
    return None


def _called(value: object) -> str:
    if value is ...:
        return "missing"
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__name__}"
