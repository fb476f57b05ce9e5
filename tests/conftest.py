"""Hypothesis: the same examples at every landing, new ones by night."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("landing", derandomize=True, deadline=None)
settings.register_profile("nightly", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "landing"))
