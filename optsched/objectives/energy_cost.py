"""Price of the energy of the GPUs held."""

from .terms import Usage


class EnergyCost(Usage):
    name = "energy_cost"
    unit = ""
    title = "price of energy: energy times energy_price_per_kwh of the cluster at the time"
    meter = "power"
    per = 3.6e6
    over_time = "energy_price_per_kwh"


TERM = EnergyCost()
