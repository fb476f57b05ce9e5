"""What a token says of the account that it is of."""

from __future__ import annotations

import base64
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain_operator.cluster.account import Account, account_of

CLAIMS = {
    "sub": "system:serviceaccount:lab:operator",
    "kubernetes.io": {
        "namespace": "lab",
        "pod": {"name": "operator-0", "uid": "1"},
        "serviceaccount": {"name": "operator", "uid": "2"},
    },
}


def token(claims: object) -> str:
    words = (json.dumps(part).encode() for part in ({"alg": "RS256"}, claims, "signature"))
    return ".".join(base64.urlsafe_b64encode(word).rstrip(b"=").decode() for word in words)


@pytest.mark.parametrize("scheme", ["Bearer ", ""])
def test_the_account_of_a_bound_token(scheme: str) -> None:
    found = account_of(scheme + token(CLAIMS))

    assert found == Account("lab", "operator", "2")
    assert found.owner() == {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "name": "operator",
        "uid": "2",
    }


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer 0123456789abcdef",
        "Bearer a.b.c",
        "Bearer a.!!.c",
        f"Bearer {token([])}",
        f"Bearer {token({'sub': 'jane'})}",
        f"Bearer {token({'kubernetes.io': None})}",
        f"Bearer {token({'kubernetes.io': {'namespace': 'lab'}})}",
        f"Bearer {token({'kubernetes.io': {'serviceaccount': {'name': 'a', 'uid': 'b'}}})}",
    ],
)
def test_other_credentials_are_of_no_account(authorization: str | None) -> None:
    assert account_of(authorization) is None


@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    account_of(text)
