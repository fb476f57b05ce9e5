"""Checkpoints: complete or absent, verified, fenced, and no more than asked for."""

from __future__ import annotations

import errno
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drivetrain_api.algorithms import AlgoName
from drivetrain_api.training import Simulator
from drivetrain_trainer.evidence import checkpoint as module
from drivetrain_trainer.evidence.checkpoint import CheckpointStore, load_part
from drivetrain_trainer.evidence.checkpoint_catalog import CheckpointCatalog
from drivetrain_trainer.evidence.checkpoint_manifest import (
    Checkpoint,
    CheckpointError,
    CheckpointSubject,
    open_checkpoint,
)
from drivetrain_trainer.evidence.fence import Fence, FencedError

SUBJECT = CheckpointSubject(
    AlgoName.SAC, "half_cheetah", Simulator.MUJOCO, {"observation_dim": 17, "hidden": [256, 256]}
)
WEIGHTS = torch.arange(1000, dtype=torch.float32)
STATE = {"weights": WEIGHTS, "counter": 7}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "run"


def open_store(
    run: Path, *, attempt: int = 1, keep: int = 3, subject: CheckpointSubject = SUBJECT
) -> CheckpointStore:
    fence = Fence(run / ".drivetrain" / "attempts", attempt)
    fence.take()
    return CheckpointStore(run / "checkpoints", subject=subject, keep=keep, fence=fence)


def save(store: CheckpointStore, env_steps: int, **marks: Any) -> Checkpoint:
    draft = store.draft(env_steps)
    draft.write("agent", {**STATE, "env_steps": env_steps})
    return store.commit(draft, parts=["agent"], iteration=env_steps // 10, **marks)


def names(run: Path) -> list[str]:
    return sorted(entry.name for entry in (run / "checkpoints").iterdir())


def steps(store: CheckpointStore) -> list[int]:
    return [open_checkpoint(path).env_steps for path in store.catalog.paths()]


class TestEvaluation:
    def test_a_committed_checkpoint_may_be_evaluated_later(self, run: Path) -> None:
        store = open_store(run)
        save(store, 10, evaluated_return=3.0, best=True)
        save(store, 20)
        noted = store.note_evaluation(20, 2.5, best=False)
        assert noted.manifest.evaluated_return == 2.5
        assert open_checkpoint(noted.path, SUBJECT) == noted
        noted.verify()
        assert (best := store.catalog.best()) is not None
        assert best.env_steps == 10
        store.note_evaluation(20, 4.0, best=True)
        assert (best := store.catalog.best()) is not None
        assert (best.env_steps, best.manifest.evaluated_return) == (20, 4.0)

    def test_the_former_best_is_kept_no_longer(self, run: Path) -> None:
        store = open_store(run, keep=1)
        save(store, 10, evaluated_return=3.0, best=True)
        save(store, 20)
        assert steps(store) == [10, 20]
        store.note_evaluation(20, 4.0, best=True)
        assert steps(store) == [20]

    def test_a_newer_attempt_is_not_overwritten(self, run: Path) -> None:
        store = open_store(run)
        save(store, 10)
        open_store(run, attempt=2)
        with pytest.raises(FencedError):
            store.note_evaluation(10, 4.0, best=True)
        assert open_checkpoint(store.catalog.paths()[0]).manifest.evaluated_return is None


class TestCommit:
    def test_what_was_saved_is_loaded(self, run: Path) -> None:
        store = open_store(run)
        saved = save(store, 1234, evaluated_return=-1.5, best=True)
        assert saved.path.name == "step_000000001234"
        for found in (store.catalog.latest(), store.catalog.best(), store.recover()):
            assert found == saved
        state = load_part(open_checkpoint(saved.path, SUBJECT), "agent")
        assert torch.equal(state["weights"], WEIGHTS)
        assert (state["counter"], state["env_steps"]) == (7, 1234)
        manifest = saved.manifest
        assert (manifest.iteration, manifest.evaluated_return, manifest.attempt) == (123, -1.5, 1)
        assert saved.bytes == (saved.path / "agent.pt").stat().st_size
        assert names(run) == ["best.json", "step_000000001234"]

    def test_every_rank_adds_its_part(self, run: Path) -> None:
        ranks = [open_store(run), open_store(run)]
        for rank, store in enumerate(ranks):
            store.draft(10).write(f"rank{rank}", {"rank": rank})
        parts = ["rank0", "rank1"]
        saved = ranks[0].commit(ranks[0].draft(10), parts=parts, iteration=1)
        assert [load_part(saved, part)["rank"] for part in parts] == [0, 1]
        assert saved.has("rank1")
        assert not saved.has("rank2")
        with pytest.raises(CheckpointError, match=r"holds no rank2\.pt"):
            load_part(saved, "rank2")

    def test_a_missing_part_is_named_and_nothing_is_committed(self, run: Path) -> None:
        store = open_store(run)
        draft = store.draft(10)
        draft.write("rank0", {})
        with pytest.raises(CheckpointError, match=r"rank1\.pt: was not written"):
            store.commit(draft, parts=["rank0", "rank1"], iteration=1)
        assert store.catalog.paths() == []

    def test_the_same_step_again_takes_the_place_of_the_first(self, run: Path) -> None:
        store = open_store(run)
        save(store, 10)
        draft = store.draft(10)
        draft.write("agent", {"second": True})
        assert load_part(store.commit(draft, parts=["agent"], iteration=1), "agent")["second"]
        assert names(run) == ["step_000000000010"]

    def test_what_a_checkpoint_cannot_hold_is_named_before_a_file_is_made(self, run: Path) -> None:
        store = open_store(run)
        with pytest.raises(TypeError, match=r"agent\['env'\]: a checkpoint cannot hold a set"):
            store.draft(10).write("agent", {"env": {1}})
        assert not (run / "checkpoints").exists()

    def test_a_fenced_attempt_commits_nothing(self, run: Path) -> None:
        old = open_store(run, attempt=1)
        save(old, 10)
        draft = old.draft(20)
        draft.write("agent", STATE)
        new = open_store(run, attempt=2)
        for forbidden in (
            lambda: old.commit(draft, parts=["agent"], iteration=2),
            old.sweep,
        ):
            with pytest.raises(FencedError):
                forbidden()
        assert steps(old) == [10]
        save(new, 20)
        assert steps(new) == [10, 20]


class TestKeep:
    def test_the_newest_and_the_best_stay(self, run: Path) -> None:
        store = open_store(run, keep=2)
        for step in range(10, 70, 10):
            save(store, step, best=step == 20)
        assert steps(store) == [20, 50, 60]
        assert names(run)[0] == "best.json"
        save(store, 70, best=True)
        assert steps(store) == [60, 70]

    @settings(
        max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
    )
    @given(
        keep=st.integers(1, 4),
        history=st.lists(st.tuples(st.integers(0, 30), st.booleans()), min_size=1, max_size=12),
    )
    def test_for_any_history(
        self, tmp_path: Path, keep: int, history: list[tuple[int, bool]]
    ) -> None:
        run = tmp_path / "any"
        shutil.rmtree(run, ignore_errors=True)
        store = open_store(run, keep=keep)
        marked = None
        for step, best in history:
            draft = store.draft(step)
            draft.write("agent", {})
            store.commit(draft, parts=["agent"], iteration=0, best=best)
            marked = step if best else marked
            present = steps(store)
            assert present == sorted(present)
            assert len(present) <= keep + 1
            assert marked is None or marked in present
            assert all(not name.startswith(".") for name in names(run))

    @pytest.mark.parametrize(
        "content", ["", "{", '{"checkpoint": "../../x"}', '{"checkpoint": "step_000000000099"}']
    )
    def test_a_spoilt_pointer_is_no_pointer(self, run: Path, content: str) -> None:
        store = open_store(run)
        save(store, 10, best=True)
        (run / "checkpoints/best.json").write_text(content)
        assert store.catalog.best() is None
        save(store, 20, best=True)
        best = store.catalog.best()
        assert best is not None
        assert best.env_steps == 20


class TestFullDisk:
    @pytest.mark.parametrize("call", ["fsync", "rename"])
    def test_in_commit_the_older_checkpoint_stands(
        self, run: Path, monkeypatch: pytest.MonkeyPatch, call: str
    ) -> None:
        store = open_store(run)
        old = save(store, 10, best=True)
        draft = store.draft(20)
        draft.write("agent", STATE)

        def full(*_: object, **__: object) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os if call == "fsync" else Path, call, full)
        with pytest.raises(OSError, match="No space left"):
            store.commit(draft, parts=["agent"], iteration=2)
        monkeypatch.undo()
        assert store.recover() == old
        assert store.catalog.best() == old
        draft.discard()
        assert names(run) == ["best.json", "step_000000000010"]

    def test_in_a_part_it_is_named_and_the_part_is_absent(self, run: Path) -> None:
        store = open_store(run)
        draft = store.draft(20)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
        try:
            with pytest.raises(OSError, match=r"File too large.*agent\.pt"):
                draft.write("agent", {"big": torch.zeros(1_000_000)})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, before)
        assert list(draft.folder.iterdir()) == []


class TestKill:
    @pytest.mark.parametrize(
        "moment", range(5), ids=["part written", "manifest", "committed", "marked", "pruning"]
    )
    def test_leaves_checkpoints_that_are_whole(self, run: Path, moment: int) -> None:
        store = open_store(run, keep=1)
        save(store, 10)
        script = textwrap.dedent(
            f"""
            import os, pathlib, shutil, signal
            from drivetrain_trainer.evidence import checkpoint, checkpoint_catalog
            from tests_store import open_store, save
            here = {moment}
            def killing(target, name, number, before=False):
                real = getattr(target, name)
                def wrapped(*args, **kwargs):
                    if not before:
                        real(*args, **kwargs)
                    if number == here:
                        os.kill(os.getpid(), signal.SIGKILL)
                    return real(*args, **kwargs) if before else None
                setattr(target, name, wrapped)
            killing(checkpoint.Draft, "write", 0)
            killing(checkpoint, "write_text_atomically", 1)
            killing(checkpoint, "fsync_folder", 2)
            killing(checkpoint_catalog.CheckpointCatalog, "mark_best", 3)
            killing(checkpoint.shutil, "rmtree", 4, before=True)
            save(open_store(pathlib.Path({str(run)!r}), keep=1), 20, best=True)
            """
        )
        (run / "tests_store.py").write_text(
            Path(__file__).read_text(encoding="utf-8"), encoding="utf-8"
        )
        environment = {**os.environ, "PYTHONPATH": str(run), "OMP_NUM_THREADS": "1"}
        ended = subprocess.run([sys.executable, "-c", script], check=False, env=environment)
        assert ended.returncode == -signal.SIGKILL
        again = open_store(run, attempt=2, keep=1)
        again.sweep()
        committed = moment in (2, 3, 4)
        found = again.recover()
        assert found is not None
        assert found.env_steps == (20 if committed else 10)
        assert all(not name.startswith(".") for name in names(run))
        save(again, 30)
        assert steps(again)[-1] == 30


def test_sweep_leaves_the_drafts_of_newer_attempts(run: Path) -> None:
    store = open_store(run, attempt=2)
    for attempt in (1, 2, 10):
        (run / f"checkpoints/.partial-step_000000000010-a{attempt}").mkdir(parents=True)
    (run / "checkpoints/notes").mkdir()
    store.sweep()
    assert names(run) == [".partial-step_000000000010-a10", "notes"]


def truncate(path: Path) -> None:
    os.truncate(path / "agent.pt", 100)


def lengthen(path: Path) -> None:
    with (path / "agent.pt").open("ab") as file:
        file.write(b"x")


def flip_a_bit(path: Path) -> None:
    content = bytearray((path / "agent.pt").read_bytes())
    content[len(content) // 2] ^= 1
    (path / "agent.pt").write_bytes(content)


def remove_the_part(path: Path) -> None:
    (path / "agent.pt").unlink()


def remove_the_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def edit_manifest(path: Path, **changes: Any) -> None:
    file = path / "manifest.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))


DAMAGE: list[tuple[Callable[[Path], object], str]] = [
    (truncate, r"agent\.pt: truncated: 100 bytes instead of \d+"),
    (lengthen, r"agent\.pt: too long: \d+ bytes instead of"),
    (flip_a_bit, r"agent\.pt: checksum differs"),
    (remove_the_part, r"agent\.pt: cannot be read: No such file"),
    (remove_the_manifest, r"is no checkpoint: it holds no manifest\.json"),
    (lambda p: (p / "manifest.json").write_text("{"), r"manifest\.json: is not JSON"),
    (lambda p: (p / "manifest.json").write_text("[" * 10_000), r"manifest\.json: is not JSON"),
    (lambda p: (p / "manifest.json").write_bytes(b" " * 2_000_000), r"larger than 1048576 bytes"),
    (lambda p: edit_manifest(p, env_steps="10"), r"manifest\.json: not a CheckpointManifest: env_"),
    (
        lambda p: edit_manifest(p, parts=[{"name": "../x.pt", "bytes": 1, "sha256": "0" * 64}]),
        r"parts\.0\.name",
    ),
    (
        lambda p: edit_manifest(p, format_version=2),
        r"manifest\.json: was written in format 2 by a newer release; this one reads up to 1",
    ),
]


class TestDamage:
    @pytest.mark.parametrize(("damage", "message"), DAMAGE)
    def test_is_named_and_the_one_before_is_taken(
        self, run: Path, damage: Callable[[Path], object], message: str
    ) -> None:
        store = open_store(run)
        save(store, 10)
        newest = save(store, 20)
        damage(newest.path)
        with pytest.raises(CheckpointError, match=message) as caught:
            open_checkpoint(newest.path).verify()
        assert str(newest.path) in str(caught.value)
        found = store.recover()
        assert found is not None
        assert found.env_steps == 10
        assert steps(store) == [10]
        assert ".rejected-step_000000000020-a1" in names(run)

    def test_of_every_checkpoint_is_an_error_each_time(self, run: Path) -> None:
        store = open_store(run)
        for step in (10, 20):
            truncate(save(store, step).path)
        for _ in range(2):
            with pytest.raises(CheckpointError, match=r"step_000000000020/agent\.pt: truncated"):
                store.recover()

    def test_a_field_of_a_later_release_is_tolerated(self, run: Path) -> None:
        saved = save(open_store(run), 10)
        edit_manifest(saved.path, later_field=1)
        assert open_checkpoint(saved.path, SUBJECT) == saved

    def test_between_opening_and_loading_is_seen(self, run: Path) -> None:
        saved = save(open_store(run), 10)
        flip_a_bit(saved.path)
        with pytest.raises(CheckpointError, match="checksum differs"):
            load_part(saved, "agent")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": "ant"}, r"is of task half_cheetah; this run trains ant"),
        ({"algo": AlgoName.PPO}, r"was written by algorithm sac; this run trains ppo"),
        (
            {"sizes": {"observation_dim": 18, "hidden": [256, 256]}},
            r"has observation_dim 17; this run has 18",
        ),
        ({"sizes": {"observation_dim": 17}}, r"has hidden \[256, 256\]; this run has null"),
    ],
)
def test_a_checkpoint_of_something_else_is_refused(
    run: Path, changes: dict[str, Any], message: str
) -> None:
    saved = save(open_store(run), 10)
    other = CheckpointSubject(**{**SUBJECT.__dict__, **changes})
    with pytest.raises(CheckpointError, match=message):
        open_checkpoint(saved.path, other)
    with pytest.raises(CheckpointError, match=message):
        open_store(run, attempt=2, subject=other).recover()
    assert steps(open_store(run, attempt=3)) == [10]


def test_the_simulator_may_differ(run: Path) -> None:
    saved = save(open_store(run), 10)
    other = CheckpointSubject(**{**SUBJECT.__dict__, "sim": Simulator.MJWARP})
    assert open_checkpoint(saved.path, other) == saved


class Exploit:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("exploited",))


def test_code_in_a_checkpoint_is_not_run(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = save(open_store(run), 10)
    torch.save({"x": Exploit()}, saved.path / "agent.pt")
    part = module._measure(saved.path / "agent.pt")
    edit_manifest(saved.path, parts=[part.model_dump()])
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        load_part(open_checkpoint(saved.path), "agent")
    assert not (tmp_path / "exploited").exists()


def test_a_part_that_is_no_state_is_refused(run: Path) -> None:
    saved = save(open_store(run), 10)
    torch.save([1], saved.path / "agent.pt")
    edit_manifest(saved.path, parts=[module._measure(saved.path / "agent.pt").model_dump()])
    with pytest.raises(CheckpointError, match="holds a list, not a state"):
        load_part(open_checkpoint(saved.path), "agent")


def test_an_empty_store_has_nothing_to_go_on_from(run: Path) -> None:
    store = open_store(run)
    store.sweep()
    assert store.recover() is None
    assert store.catalog.latest() is None
    assert store.catalog.best() is None
    assert CheckpointCatalog(run / "nowhere").paths() == []
