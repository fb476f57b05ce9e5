"""Configuration files of a node's programs."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import yaml
from tests.support.kubernetes.node_slot import Slot

SERVICES = "10.96.0.0/16"


@dataclass(frozen=True)
class NodeFiles:
    """Where a node's files are, and what is in those that its programs read."""

    folder: Path
    slot: Slot
    name: str
    sandbox_image: str
    number: int = 0
    """Of a node among those that share one sandbox."""

    @property
    def pods(self) -> str:
        """Addresses of its pods; inside a sandbox's own network, so all have the same."""
        return f"10.244.{self.number}.0/24"

    @property
    def state(self) -> str:
        """containerd's folder inside the sandbox's own /run."""
        return "/run/containerd" if self.number == 0 else f"/run/containerd-{self.number}"

    @property
    def socket(self) -> str:
        """containerd's."""
        return f"{self.state}/containerd.sock"

    @property
    def cgroup(self) -> str:
        """The group below which the pods' groups are."""
        return self.slot.cgroup if self.number == 0 else f"{self.slot.cgroup}/node-{self.number}"

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
state = "{self.state}/state"
[grpc]
  address = "{self.socket}"
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
            "ranges": [[{"subnet": self.pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(self.path("addresses")),
        }
        bridge = {
            "type": "bridge",
            "bridge": f"pods{self.number}",
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
            "cgroupRoot": f"/{self.cgroup}",
            "failSwapOn": False,
            "address": self.slot.node,
            "port": 10250 + 10 * self.number,
            "healthzPort": 10248 + 10 * self.number,
            # A Service without endpoints has no rule, so names are asked of the node itself.
            "clusterDNS": [self.slot.node],
            "clusterDomain": "cluster.local",
            "resolvConf": "",
            "containerRuntimeEndpoint": f"unix://{self.socket}",
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
