"""Names that NVIDIA gave; imported by ranks, so nothing else is."""

from __future__ import annotations

from typing import Final

PROGRAM: Final = "nvidia-cuda-mps-control"
"""Daemon and client in one."""
CONTROL: Final = "control"
"""The control pipe in a pipe directory."""
PIPE_DIRECTORY: Final = "CUDA_MPS_PIPE_DIRECTORY"
LOG_DIRECTORY: Final = "CUDA_MPS_LOG_DIRECTORY"
THREAD_PERCENTAGE: Final = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
MEMORY_LIMIT: Final = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"
