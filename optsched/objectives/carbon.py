"""Carbon dioxide that the energy of the GPUs held stands for."""

from .terms import Usage


class Carbon(Usage):
    name = "carbon"
    unit = "g"
    title = "grams of CO2: energy times carbon_g_per_kwh of the cluster at the time"
    meter = "power"
    per = 3.6e6
    over_time = "carbon_g_per_kwh"


TERM = Carbon()
