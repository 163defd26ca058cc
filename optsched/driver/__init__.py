"""What a policy sees of a cluster and may do with it, in virtual time and on real nodes alike."""

from .layout import Need
from .mixed import placement_on
from .outlook import Outlook
from .placement import Room
from .reservation import Reservation, Reservations
from .state import Ending
from .trial import Trial
from .view import Fit, PolicyError
from .world import World

__all__ = [
    "Ending",
    "Fit",
    "Need",
    "Outlook",
    "PolicyError",
    "Reservation",
    "Reservations",
    "Room",
    "Trial",
    "World",
    "placement_on",
]
