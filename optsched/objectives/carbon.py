"""Carbon dioxide that the energy of the GPUs held stands for."""

from functools import cache

from ..errors import InputError
from ..model.cluster import Cluster, Steps
from .tariff import Tariff
from .terms import Usage


class Carbon(Usage):
    name = "carbon"
    unit = "g"
    title = "grams of CO2: energy times carbon_g_per_kwh of the cluster at the time"
    meter = "power"
    per = 3.6e6

    def tariff(self, cluster: Cluster) -> Tariff:
        if cluster.carbon_g_per_kwh is None:
            raise InputError("objective carbon needs cluster.carbon_g_per_kwh, the grams for a kWh")
        return _tariff(cluster.carbon_g_per_kwh)


@cache
def _tariff(g_per_kwh: float | Steps) -> Tariff:
    if not isinstance(g_per_kwh, tuple):
        return Tariff((g_per_kwh,))
    times_s, grams = zip(*g_per_kwh, strict=True)
    return Tariff(grams, times_s)


TERM = Carbon()
