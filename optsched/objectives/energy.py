"""Electric energy."""

from .terms import Usage


class Energy(Usage):
    name = "energy"
    unit = "kWh"
    title = "energy of the GPUs held"
    meter = "power"
    per = 3.6e6


TERM = Energy()
