"""Names of algorithms where other programs look for them."""

from __future__ import annotations

from drivetrain_api.algorithms import ALGO_LOG_NAMES


def test_names_in_log_paths_are_the_contracts() -> None:
    assert {name.value: text for name, text in ALGO_LOG_NAMES.items()} == {
        "ppo": "rsl_rl_ppo",
        "appo": "appo",
        "sac": "sac",
        "flashsac": "flash_sac",
    }
