"""optsched: an instance goes in, a checked plan with a proven gap comes out."""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .errors import InputError
from .model import (
    Clock,
    Cluster,
    Completed,
    Elastic,
    Failure,
    Instance,
    Job,
    JobPlan,
    Locality,
    Mode,
    Node,
    Outage,
    Phase,
    Placement,
    Plan,
    Profile,
    Running,
    Segment,
    Sharing,
    Slot,
    Solution,
    Suspended,
    Tenant,
)

if TYPE_CHECKING:
    from .api import (
        Model,
        bound,
        decide,
        explain,
        generate,
        import_trace,
        pack,
        read_instance,
        read_plan,
        simulate,
        solve,
        verify,
        with_past,
        write_instance,
        write_plan,
    )

__version__ = "0.1.0"

__all__ = [
    "Clock",
    "Cluster",
    "Completed",
    "Elastic",
    "Failure",
    "InputError",
    "Instance",
    "Job",
    "JobPlan",
    "Locality",
    "Mode",
    "Model",
    "Node",
    "Outage",
    "Phase",
    "Placement",
    "Plan",
    "Profile",
    "Running",
    "Segment",
    "Sharing",
    "Slot",
    "Solution",
    "Suspended",
    "Tenant",
    "__version__",
    "bound",
    "decide",
    "explain",
    "generate",
    "import_trace",
    "pack",
    "read_instance",
    "read_plan",
    "simulate",
    "solve",
    "verify",
    "with_past",
    "write_instance",
    "write_plan",
]


class _Room(ModuleType):
    """A package that is also a function of the API: `optsched.simulate(instance)`."""

    def __call__(self, *given: Any, **named: Any) -> Any:
        from . import api

        return getattr(api, self.__name__.rpartition(".")[2])(*given, **named)


class _Package(ModuleType):
    """This package, which makes those of its packages callable whose names the API has too."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _ROOMS and type(value) is ModuleType:
            value.__class__ = _Room
        super().__setattr__(name, value)


_ROOMS = ("explain", "simulate", "verify")
sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Load what makes plans only when it is asked for."""
    if name in _ROOMS:
        return importlib.import_module(f".{name}", __name__)
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from . import api

    return getattr(api, name)
