"""For sites that keep Kueue as their scheduler: rounds are decided here, and Kueue is told the
order by priorities."""
