"""The control plane itself: it serves, controllers act, and each server can be stopped."""

from __future__ import annotations

from tests.support.kubernetes.api import Api, wait_for


def test_controllers_act(api: Api, namespace: str) -> None:
    wait_for(lambda: api.find("v1", "ServiceAccount", "default", namespace), "account")
