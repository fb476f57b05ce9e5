"""What a run's checkpoint holds, when it is written, and how a run goes on from one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import ValidationError

from drivetrain_api.artifacts.stages import RunStages
from drivetrain_trainer import stats
from drivetrain_trainer.evidence.checkpoint import load_part
from drivetrain_trainer.evidence.checkpoint_manifest import (
    LEARNER_PART,
    CheckpointError,
    rank_part,
)
from drivetrain_trainer.runtime.replay import ReplayStateError
from drivetrain_trainer.training.schedule import Cursor, Every

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from drivetrain_api.training import Simulator
    from drivetrain_trainer.algorithms.sac.agent import SacAgent
    from drivetrain_trainer.evidence.checkpoint import CheckpointStore
    from drivetrain_trainer.evidence.checkpoint_manifest import Checkpoint
    from drivetrain_trainer.runtime.metrics_board import RngSnapshot
    from drivetrain_trainer.runtime.replay import ReplayRing
    from drivetrain_trainer.training.ranks import Ranks

log = structlog.get_logger(__name__)


@dataclass(frozen=True)
class Restored:
    """Where a run goes on from."""

    cursor: Cursor
    best_return: float | None
    reports: dict[str, Any]
    env_rng_state: torch.Tensor | None
    stages: RunStages | None = None
    """None in checkpoints of releases before there were stages."""


class Checkpointer:
    """Writes the checkpoints of a run; every rank calls, rank 0 commits."""

    def __init__(
        self,
        store: CheckpointStore,
        *,
        interval: int | None,
        start_env_steps: int,
        save_replay: bool,
        agent: SacAgent,
        replay: ReplayRing,
        snapshot: Callable[[], RngSnapshot | None],
        ranks: Ranks,
        report_state: Callable[[], dict[str, Any]],
        stage_state: Callable[[], dict[str, Any]],
        best_return: Callable[[], float],
        committed: Callable[[Checkpoint, bool], None],
    ) -> None:
        self._store = store
        self._every = Every(interval, last=start_env_steps)
        self._save_replay = save_replay
        self._agent = agent
        self._replay = replay
        self._snapshot = snapshot
        self._ranks = ranks
        self._report_state = report_state
        self._stage_state = stage_state
        self._best_return = best_return
        self._committed = committed
        self.saved_env_steps: int | None = None

    def due(self, env_steps: int) -> bool:
        """Whether the interval asks for one at this boundary."""
        return self._every.due(env_steps)

    def save(self, cursor: Cursor, *, evaluated_return: float | None = None) -> None:
        """Write a checkpoint at a boundary; `evaluated_return` marks it as the best so far."""
        with stats.record_timing("checkpoint_save"):
            self._write(cursor, evaluated_return)
        self._every.done(cursor.env_steps)
        self.saved_env_steps = cursor.env_steps

    def evaluated(self, cursor: Cursor, mean_return: float, *, best: bool) -> None:
        """Note an evaluation of the checkpoint at this step; rank 0 does it."""
        if self._ranks.leads:
            noted = self._store.note_evaluation(cursor.env_steps, mean_return, best=best)
            self._committed(noted, best)

    def _write(self, cursor: Cursor, evaluated_return: float | None) -> None:
        draft = self._store.draft(cursor.env_steps)
        rank = self._ranks.rank
        draft.write(rank_part(rank), self._rank_state())
        if self._ranks.leads:
            draft.write(LEARNER_PART, self._learner_state(cursor))
        self._ranks.barrier()
        if self._ranks.leads:
            parts = [LEARNER_PART, *(rank_part(r) for r in range(self._ranks.world_size))]
            best = evaluated_return is not None
            written = self._store.commit(
                draft,
                parts=parts,
                iteration=cursor.iteration,
                evaluated_return=evaluated_return,
                best=best,
            )
            self._committed(written, best)
            log.info("checkpoint written", env_steps=cursor.env_steps, best=best)
        self._ranks.barrier()

    def _learner_state(self, cursor: Cursor) -> dict[str, Any]:
        return {
            "agent": self._agent.state_dict(),
            "cursor": {
                "tick": cursor.tick,
                "iteration": cursor.iteration,
                "env_steps": cursor.env_steps,
            },
            "best_return": self._best_return(),
            "reports": self._report_state(),
            "stages": self._stage_state(),
        }

    def _rank_state(self) -> dict[str, Any]:
        snapshot = self._snapshot()
        state: dict[str, Any] = {
            "env_rng": snapshot.state if snapshot is not None else None,
        }
        if self._save_replay:
            state["replay"] = self._replay.state_dict()
        return state


def restore(
    checkpoint: Checkpoint, *, agent: SacAgent, replay: ReplayRing, rank: int, sim: Simulator
) -> Restored:
    """Put a checkpoint's state into the agent (and the replay, where it was stored).

    A rank that the checkpoint knows nothing of (the run has more ranks now) goes on with
    fresh environment generators, and so does one on another simulator, whose generator may be
    of another kind of device.

    Raises:
        CheckpointError: a part is missing or damaged, or its replay does not fit this run's.
    """
    learner = load_part(checkpoint, LEARNER_PART)
    agent.load_state_dict(learner["agent"])
    own: dict[str, Any] = {}
    if rank < checkpoint.manifest.world_size:
        own = load_part(checkpoint, rank_part(rank))
    if own.get("replay") is not None:
        try:
            replay.load_state_dict(own["replay"])
        except ReplayStateError as error:
            raise CheckpointError(checkpoint.path, f"{error} (algo.replayRows)") from error
    return Restored(
        cursor=Cursor(**learner["cursor"]),
        best_return=learner["best_return"],
        reports=learner["reports"],
        env_rng_state=own.get("env_rng") if checkpoint.manifest.sim is sim else None,
        stages=_stages(checkpoint, learner.get("stages")),
    )


def _stages(checkpoint: Checkpoint, state: object) -> RunStages | None:
    try:
        return None if state is None else RunStages.model_validate(state)
    except ValidationError as error:
        raise CheckpointError(checkpoint.path, f"its stages are none: {error}") from error
