"""Configuration files of a node's programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.support.kubernetes.node_slot import Slot

PODS = "10.244.0.0/24"
"""Addresses of pods; inside the node's own network, so every node has the same."""
SERVICES = "10.96.0.0/16"
RUNTIME_SOCKET = "/run/containerd/containerd.sock"
"""Inside the node's own /run."""


@dataclass(frozen=True)
class NodeFiles:
    """Where a node's files are, and what is in those that its programs read."""

    folder: Path
    slot: Slot
    name: str
    sandbox_image: str

    @property
    def kubeconfig(self) -> Path:
        """Of an administrator."""
        return self.folder / "kubeconfig"

    @property
    def runtime(self) -> Path:
        """containerd's own folder: images and containers."""
        return self.folder / "containerd"

    @property
    def authority(self) -> Path:
        """Certificate that the API server is verified by."""
        return self.folder / "certificates" / "apiserver.crt"

    def path(self, name: str) -> Path:
        """A file of the node."""
        return self.folder / name

    def write(self) -> None:
        """Write them all."""
        self.path("network").mkdir(parents=True, exist_ok=True)
        self.path("containerd.toml").write_text(self._containerd())
        self.path("network/10-node.conflist").write_text(json.dumps(self._network()))
        self.path("Corefile").write_text(self._coredns())
        self.path("kubelet.yaml").write_text(yaml.safe_dump(self._kubelet()))

    def _containerd(self) -> str:
        return f"""version = 2
root = "{self.runtime}"
state = "/run/containerd/state"
[grpc]
  address = "{RUNTIME_SOCKET}"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.folder / "opt"}"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{self.sandbox_image}"
  # Lowering a score takes a capability that root may lack where it is confined itself.
  restrict_oom_score_adj = true
  stream_server_address = "{self.slot.node}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "{self.path("network")}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
"""

    def _network(self) -> dict[str, object]:
        addresses = {
            "type": "host-local",
            "ranges": [[{"subnet": PODS}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self.path("addresses")),
        }
        bridge = {
            "type": "bridge",
            "bridge": "pods",
            "isGateway": True,
            "ipMasq": False,
            "hairpinMode": True,
            "ipam": addresses,
        }
        ports = {"type": "portmap", "capabilities": {"portMappings": True}}
        return {"cniVersion": "1.0.0", "name": "pods", "plugins": [bridge, ports]}

    def _coredns(self) -> str:
        return f""".:53 {{
    bind {self.slot.node}
    errors
    kubernetes cluster.local in-addr.arpa {{
        kubeconfig {self.kubeconfig} tests
        pods insecure
        ttl 1
    }}
}}
"""

    def _kubelet(self) -> dict[str, object]:
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.slot.cgroup}",
            "failSwapOn": False,
            "address": self.slot.node,
            # A Service without endpoints has no rule, so names are asked of the node itself.
            "clusterDNS": [self.slot.node],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "containerRuntimeEndpoint": f"unix://{RUNTIME_SOCKET}",
            "podLogsDir": str(self.path("pod-logs")),
            # The tests' machine may be fuller than a node ever should be.
            "evictionHard": {
                "imagefs.available": "0%",
                "nodefs.available": "0%",
                "nodefs.inodesFree": "0%",
            },
            "imageGCHighThresholdPercent": 100,
            "registerNode": True,
        }
