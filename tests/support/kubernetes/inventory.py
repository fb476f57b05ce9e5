"""Everything that a cluster holds, to tell what came and what went."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tests.support.kubernetes.kubectl import Kubectl

_KUBERNETES = ("kube-system", "kube-public", "kube-node-lease")
"""Namespaces of Kubernetes itself, which go on changing: no user's objects are there."""
_PASSED_OVER = ("events", "events.events.k8s.io", "componentstatuses", "endpoints")
"""Gone by themselves after a while, no objects at all, or a shadow of a Service without owner."""

_IN_ANY_NAMESPACE = {("ServiceAccount", "default"), ("ConfigMap", "kube-root-ca.crt")}
"""Put there by Kubernetes, on a new cluster some time after the namespace."""


@dataclass(frozen=True)
class Item:
    """An object, by what makes it this one and no other."""

    kind: str
    namespace: str
    name: str
    uid: str

    @property
    def own(self) -> bool:
        """Whether Kubernetes made it for itself."""
        return self.namespace in _KUBERNETES or (self.kind, self.name) in _IN_ANY_NAMESPACE

    def __str__(self) -> str:
        place = f"{self.namespace}/" if self.namespace else ""
        return f"{self.kind} {place}{self.name}"


@dataclass(frozen=True)
class Inventory:
    """Every object of a cluster at a moment."""

    owners: dict[Item, frozenset[str]]
    """Each object with the UIDs of its owners; a volume's is the claim that it is bound to."""

    @classmethod
    def take(cls, kubectl: Kubectl) -> Inventory:
        """Ask for every resource that can be listed; without what is Kubernetes' own."""
        listed = kubectl("api-resources", "--verbs=list", "--output=name", "--cached=false")
        resources = [name for name in listed.split() if name not in _PASSED_OVER]
        text = kubectl("get", ",".join(resources), "--all-namespaces", "--output=json")
        found = (_read(item) for item in json.loads(text)["items"])
        return cls({item: owned for item, owned in found if not item.own})

    def beyond(self, earlier: Inventory) -> Inventory:
        """What is there now and was not then."""
        return Inventory({k: v for k, v in self.owners.items() if k not in earlier.owners})

    def without(self, items: Iterable[Item]) -> Inventory:
        """All but some objects and what they own, directly or not."""
        gone = set(items)
        while True:
            uids = {item.uid for item in gone}
            more = {item for item, owners in self.owners.items() if owners & uids} - gone
            if not more:
                return Inventory({k: v for k, v in self.owners.items() if k not in gone})
            gone |= more

    def of_kind(self, *kinds: str) -> list[Item]:
        """Objects of some kinds."""
        return [item for item in self.owners if item.kind in kinds]

    def within(self, *namespaces: str) -> list[Item]:
        """Namespaces of these names, and all that is in them."""
        return [
            item
            for item in self.owners
            if item.namespace in namespaces or (item.kind, item.name) in _named(namespaces)
        ]

    def names(self) -> list[str]:
        """For people, in order."""
        return sorted(map(str, self.owners))


def _named(namespaces: tuple[str, ...]) -> set[tuple[str, str]]:
    return {("Namespace", name) for name in namespaces}


def _read(found: dict[str, Any]) -> tuple[Item, frozenset[str]]:
    metadata = found["metadata"]
    item = Item(found["kind"], metadata.get("namespace", ""), metadata["name"], metadata["uid"])
    owners = {owner["uid"] for owner in metadata.get("ownerReferences", ())}
    if item.kind == "PersistentVolume":
        owners.add(found["spec"].get("claimRef", {}).get("uid", ""))
    return item, frozenset(owners)
