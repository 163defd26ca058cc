"""The page of a simulation: what happened, for a person, offline and interactive (plotly, extra
`report`)."""

from .page import page

__all__ = ["page"]
