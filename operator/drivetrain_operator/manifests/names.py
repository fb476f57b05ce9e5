"""Names of a run's children and of what is inside them: one place that decides.

The longest legal run name has 50 characters, so that the longest of these, a pod's
host name ``<run>-a<attempt>-<index>``, still is a DNS label of 63.
"""

from __future__ import annotations

from typing import Final

TRAINER_CONTAINER: Final = "trainer"
RUN_JSON: Final = "run.json"
"""Key of an attempt's ConfigMap, and name of the file in the pod."""
PROGRESS_KEY: Final = "progress"
"""Key of the progress ConfigMap; the admission policy allows no other."""


def attempt_name(run: str, attempt: int) -> str:
    """Name of an attempt's Job, Service and ConfigMap."""
    return f"{run}-a{attempt}"


def progress_name(run: str) -> str:
    """Name of the run's progress ConfigMap."""
    return f"{run}-progress"


def account_name(run: str) -> str:
    """Name of the run's ServiceAccount, Role and RoleBinding."""
    return f"{run}-trainer"


def claim_name(run: str) -> str:
    """Name of the claim that is made for a run with `storage.size`."""
    return f"{run}-storage"
