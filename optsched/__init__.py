"""optsched: an instance goes in, a checked plan with a proven gap comes out."""

from .model.cluster import Cluster, Node, Tenant
from .model.instance import Failure, Instance, Outage, Placement, Running, Slot, Suspended
from .model.job import Elastic, Job, Mode
from .model.plan import JobPlan, Plan, Segment, Solution
from .model.profile import Clock, Locality, Profile, Sharing

__version__ = "0.1.0"

__all__ = [
    "Clock",
    "Cluster",
    "Elastic",
    "Failure",
    "Instance",
    "Job",
    "JobPlan",
    "Locality",
    "Mode",
    "Node",
    "Outage",
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
]
