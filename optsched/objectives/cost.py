"""Price of GPU time."""

from .terms import Usage


class Price(Usage):
    name = "cost"
    unit = ""
    title = "price of the GPU-hours held"
    meter = "price"
    per = 3600.0


TERM = Price()
