"""The ServiceAccount that we act as, from what its token says of itself."""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass
from typing import Any

from drivetrain_operator.reconcile.fields import mapping, text

_PARTS = 3
"""Of a JSON Web Token: header, claims, signature."""


@dataclass(frozen=True)
class Account:
    """A ServiceAccount."""

    namespace: str
    name: str
    uid: str

    def owner(self) -> dict[str, Any]:
        """Reference for what is to go with the account; in its own namespace alone."""
        return {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "name": self.name,
            "uid": self.uid,
        }


def account_of(authorization: str | None) -> Account | None:
    """The account that a bearer token is of; None for any other credentials.

    The signature is not checked: the API server does, and refuses what it did not sign.
    """
    parts = (authorization or "").removeprefix("Bearer ").split(".")
    if len(parts) != _PARTS:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except (binascii.Error, ValueError):
        return None
    if not isinstance(claims, dict):
        return None
    bound = mapping(claims, "kubernetes.io")
    account = mapping(bound, "serviceaccount")
    found = Account(text(bound, "namespace"), text(account, "name"), text(account, "uid"))
    return found if found.namespace and found.name and found.uid else None
