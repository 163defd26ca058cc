"""The nouns: frozen values without input or output."""

from .cluster import (
    FOR_EVER_S,
    MOST_OF_A_NAME,
    POWER_CAP,
    Cluster,
    Label,
    Node,
    Steps,
    Tenant,
    Tier,
    Window,
)
from .instance import Completed, Failure, Instance, Outage, Placement, Running, Slot, Suspended
from .job import Elastic, Job, Mode, first_come, gang, most_gpus
from .plan import CLOSED_GAP, Decision, Incident, JobPlan, Level, Plan, Segment, Solution, Status
from .profile import UNMEASURED, Clock, Locality, Phase, Profile, Sharing
from .quotas import MOST_LEVELS, Quotas, not_lowered
from .shares import Account, Shares, Use

__all__ = [
    "CLOSED_GAP",
    "FOR_EVER_S",
    "MOST_LEVELS",
    "MOST_OF_A_NAME",
    "POWER_CAP",
    "UNMEASURED",
    "Account",
    "Clock",
    "Cluster",
    "Completed",
    "Decision",
    "Elastic",
    "Failure",
    "Incident",
    "Instance",
    "Job",
    "JobPlan",
    "Label",
    "Level",
    "Locality",
    "Mode",
    "Node",
    "Outage",
    "Phase",
    "Placement",
    "Plan",
    "Profile",
    "Quotas",
    "Running",
    "Segment",
    "Shares",
    "Sharing",
    "Slot",
    "Solution",
    "Status",
    "Steps",
    "Suspended",
    "Tenant",
    "Tier",
    "Use",
    "Window",
    "first_come",
    "gang",
    "most_gpus",
    "not_lowered",
]
