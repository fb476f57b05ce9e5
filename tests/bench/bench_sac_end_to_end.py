"""SAC on HalfCheetah, end to end: updates a second at equal nets, batch and update ratio."""

from __future__ import annotations

import torch
from tests.bench.peer import run_peer
from tests.bench.result import Result, against
from tests.bench.training_run import train

RUNS = 3
PEER_STEPS = 1000
OURS_STEPS = 4000
PEERS = ("sb3", "skrl")


def measure() -> list[Result]:
    """Ours in fp32 (and bf16 where the CPU has the instructions) beside each peer, in turn."""
    precisions = ["fp32"]
    if torch.cpu.get_capabilities().get("avx512_bf16") or torch.cpu.get_capabilities().get(
        "amx_bf16"
    ):
        precisions.append("bf16")
    rates: dict[str, list[float]] = {name: [] for name in (*precisions, *PEERS)}
    for _ in range(RUNS):
        for precision in precisions:
            rates[precision].append(ours(precision))
        for peer in PEERS:
            figures = run_peer(peer, f"{peer}_sac.py", str(PEER_STEPS))
            rates[peer].append(figures["updates_per_second"])
    best = max(PEERS, key=lambda peer: sorted(rates[peer])[RUNS // 2])
    return [
        against(
            f"sac_end_to_end_{precision}",
            "updates/s, HalfCheetah, B = 256, 256x256",
            rates[precision],
            rates[best],
            reference_name=best,
            target=1.2 if precision == "fp32" else 2.0,
        )
        for precision in precisions
    ]


def ours(precision: str) -> float:
    """One update for each env step, as the peers: the env-step rate is the update rate."""
    figures = train(
        {
            "algo": {"name": "sac", "precision": precision},
            "task": {"name": "half_cheetah"},
            "training": {"totalEnvSteps": OURS_STEPS},
            "evaluator": {"interval": None},
            "checkpoint": {"interval": 1_000_000},
        }
    )
    return figures["Perf/total_fps"]
