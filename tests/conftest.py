"""Hypothesis tries the same examples in every run; `--hypothesis-profile=default` tries others."""

from hypothesis import settings

settings.register_profile("fixed", derandomize=True)
settings.load_profile("fixed")
