"""Everything that speaks against a run is named before a process starts."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drivetrain_api.attempt import AttemptSpec
from drivetrain_api.errors import SpecError
from drivetrain_api.memory import AvailableMemory
from drivetrain_trainer.evidence.checkpoint import CheckpointStore
from drivetrain_trainer.evidence.checkpoint_manifest import CheckpointSubject
from drivetrain_trainer.evidence.fence import Fence
from drivetrain_trainer.evidence.run_directory import RunDirectory
from drivetrain_trainer.launcher.preflight import Machine, check_run, read_attempt

GIB = 1 << 30
ROOMY = Machine(64 * GIB, "tests", 8 * GIB, 0, "tests")
GPUS = replace(ROOMY, gpus=2)


@pytest.fixture(autouse=True)
def stand_in_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent / "stand_in")


def document(**spec: Any) -> dict[str, Any]:
    return {
        "name": "run",
        "namespace": "default",
        "uid": "u",
        "attempt": 1,
        "created": "2026-03-09T18:30:00Z",
        "spec": {
            "algo": {"name": "sac", "numEnvs": 4, "batchSize": 64, "replayRows": 1000},
            "task": {"name": "stand_in", "entryPoint": "stand_in_task:TASK"},
            "training": {"totalEnvSteps": 1000},
            **spec,
        },
    }


def attempt(**spec: Any) -> AttemptSpec:
    return AttemptSpec.model_validate(document(**spec))


def refusals(storage: Path, machine: Machine = ROOMY, **spec: Any) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        check_run(attempt(**spec), storage, machine)
    return {violation.path: violation.message for violation in caught.value.violations}


def test_a_sound_run_is_composed(tmp_path: Path) -> None:
    checked = check_run(attempt(), tmp_path, ROOMY)
    assert checked.task.name == "stand_in"
    assert checked.spec.training.replay_ingress_slot_rows == 4
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("training", "environ", "path", "words"),
    [
        ({"collectorTensorDevice": "cuda"}, {}, "training.collector_tensor_device", "no CUDA"),
        ({"device": "mps"}, {}, "training.device", "no Metal device"),
    ],
)
def test_devices_that_cannot_be_are_refused_before_a_rank_starts(
    tmp_path: Path, training: dict[str, Any], environ: dict[str, str], path: str, words: str
) -> None:
    found = refusals(
        tmp_path, replace(ROOMY, environ=environ), training={"totalEnvSteps": 1000} | training
    )
    assert words in found[path]


def test_a_cpu_carrier_beside_a_cuda_learner_needs_a_word(tmp_path: Path) -> None:
    training = {"totalEnvSteps": 1000, "collectorTensorDevice": "cpu"}
    found = refusals(tmp_path, GPUS, training=training)
    assert "through host memory" in found["training.collector_tensor_device"]
    for machine in (
        replace(GPUS, environ={"DRIVETRAIN_ALLOW_CUDA_LEARNER_CPU_CARRIER": "1"}),
        replace(GPUS, hip=True),
    ):
        check_run(attempt(training=training), tmp_path, machine)


class TestReading:
    def test_what_builders_wrote_is_read(self, tmp_path: Path) -> None:
        path = tmp_path / "run.json"
        path.write_text(json.dumps(document()))
        assert read_attempt(path) == attempt()

    def test_a_mounted_config_map_is_read_through_its_links(self, tmp_path: Path) -> None:
        (tmp_path / "..2026_01_01").mkdir()
        (tmp_path / "..2026_01_01" / "run.json").write_text(json.dumps(document()))
        (tmp_path / "..data").symlink_to("..2026_01_01")
        (tmp_path / "run.json").symlink_to("..data/run.json")
        assert read_attempt(tmp_path / "run.json") == attempt()

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (None, r"DRIVETRAIN_SPEC_FILE: .*run\.json is not there"),
            ("{", "."),
            ("[]", "."),
            ('{"name": 3}', "name"),
            (" " * 2_000_000, "larger than 1048576 bytes"),
            (json.dumps(document(seed=True)), r"spec\.seed|seed: must be"),
            (json.dumps(document(surprise=1)), "surprise: unknown key"),
        ],
    )
    def test_what_is_not_one_is_refused(
        self, tmp_path: Path, content: str | None, message: str
    ) -> None:
        path = tmp_path / "run.json"
        if content is not None:
            path.write_text(content)
        with pytest.raises(SpecError, match=message):
            read_attempt(path)


def test_contradictions_and_unknown_tasks_are_refused(tmp_path: Path) -> None:
    training = {"totalEnvSteps": 1000, "iterations": 3}
    assert "contradicts" in refusals(tmp_path, training=training)["training.iterations"]
    assert (
        "no_such_module"
        in refusals(tmp_path, task={"name": "x", "entryPoint": "no_such_module:TASK"})[
            "task.entry_point"
        ]
    )
    task = {"name": "stand_in", "entryPoint": "stand_in_task:TASK", "overrides": {"gravity": 1.0}}
    assert "no parameter" in refusals(tmp_path, task=task)["task.overrides.gravity"]


def test_everything_is_told_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    found = refusals(
        tmp_path,
        replace(ROOMY, available_bytes=GIB // 2),
        checkpoint={"resumeFrom": "nowhere"},
        accelerator={"gpusPerNode": 1},
        training={"totalEnvSteps": 1000, "logRoot": "file/below"},
    )
    assert set(found) == {
        "training.log_root",
        "checkpoint.resume_from",
        "accelerator.gpus_per_node",
        "algo.replay_rows",
    }


class TestMemory:
    def test_the_sum_and_what_the_processes_take_are_shown(self, tmp_path: Path) -> None:
        algo = {"name": "sac", "numEnvs": 4, "batchSize": 64, "replayRows": 100_000_000}
        message = refusals(tmp_path, replace(ROOMY, available_bytes=4 * GIB), algo=algo)[
            "algo.replay_rows"
        ]
        assert "100000000 needs too much memory" in message
        assert "at most" in message
        assert "available is 4096.0 MiB (tests) less 1050 MiB for the processes" in message

    def test_more_ranks_need_more(self, tmp_path: Path) -> None:
        machine = replace(ROOMY, available_bytes=int(1.2 * GIB))
        check_run(attempt(), tmp_path, machine)
        refused = refusals(tmp_path, machine, topology={"ranksPerNode": 2})
        assert "2 ranks" in next(iter(refused.values()))

    def test_replay_on_a_gpu_is_not_asked_of_the_host(self, tmp_path: Path) -> None:
        algo = {"name": "sac", "numEnvs": 4, "batchSize": 64, "replayRows": 100_000_000}
        machine = replace(GPUS, available_bytes=4 * GIB)
        check_run(attempt(algo=algo), tmp_path, machine)
        training = {"totalEnvSteps": 1000, "device": "cpu"}
        assert "algo.replay_rows" in refusals(tmp_path, machine, algo=algo, training=training)

    def test_ranks_that_share_a_gpu_share_what_it_has_free(self, tmp_path: Path) -> None:
        # 10,000,000 rows of 10 values: below 0.8 of 1 GiB for one rank, not for two.
        algo = {"name": "sac", "numEnvs": 4, "batchSize": 64, "replayRows": 10_000_000}
        free = AvailableMemory(GIB, "tests")
        machine = replace(GPUS, gpus=1, device_memory=free)
        check_run(attempt(algo=algo), tmp_path, machine)
        shared = {"algo": algo, "topology": {"ranksPerNode": 2}}
        message = refusals(tmp_path, machine, **shared)["algo.replay_rows"]
        assert "above 0.8 x 1024.0 MiB free on cuda:0 / 2 ranks = 409.6 MiB" in message
        check_run(attempt(**shared), tmp_path, replace(machine, gpus=2))
        check_run(attempt(**shared), tmp_path, replace(machine, device_memory=None))

    def test_a_device_that_is_not_there_is_told_once(self, tmp_path: Path) -> None:
        with pytest.raises(SpecError) as caught:
            check_run(attempt(training={"totalEnvSteps": 1000, "device": "cuda"}), tmp_path, ROOMY)
        assert [found.path for found in caught.value.violations].count("training.device") == 1


class TestDevices:
    @pytest.mark.parametrize(
        ("machine", "asked", "device", "path"),
        [
            (ROOMY, 0, "auto", None),
            (ROOMY, 0, "cpu", None),
            (ROOMY, 0, "cuda", "training.device"),
            (ROOMY, 1, "auto", "accelerator.gpus_per_node"),
            (GPUS, 2, "auto", None),
            (GPUS, 3, "auto", "accelerator.gpus_per_node"),
            (GPUS, 2, "cuda:1", None),
            (GPUS, 2, "cuda:2", "training.device"),
        ],
    )
    def test_asked_and_present(
        self, tmp_path: Path, machine: Machine, asked: int, device: str, path: str | None
    ) -> None:
        spec = {
            "accelerator": {"gpusPerNode": asked},
            "training": {"totalEnvSteps": 1000, "device": device},
        }
        if path is None:
            check_run(attempt(**spec), tmp_path, machine)
        else:
            assert list(refusals(tmp_path, machine, **spec)) == [path]

    @pytest.mark.parametrize(
        ("mode", "environ", "device", "message"),
        [
            ("InContainer", {}, "auto", "needs nvidia-cuda-mps-control, which is not on PATH"),
            ("InContainer", {}, "cpu", "needs a learner on a GPU"),
            ("InContainer", {}, "cuda:1", "training.device is cuda:1: set cuda or auto"),
            (
                "InContainer",
                {"CUDA_MPS_PIPE_DIRECTORY": "/mps"},
                "auto",
                "CUDA_MPS_PIPE_DIRECTORY=/mps is injected into this container: set External",
            ),
            ("External", {}, "auto", "CUDA_MPS_PIPE_DIRECTORY is not set in this container"),
            (
                "External",
                {"CUDA_MPS_PIPE_DIRECTORY": "/nowhere"},
                "auto",
                "/nowhere/control: No such file or directory",
            ),
        ],
    )
    def test_mps_that_cannot_work_is_refused_never_ignored(
        self, tmp_path: Path, mode: str, environ: dict[str, str], device: str, message: str
    ) -> None:
        found = refusals(
            tmp_path,
            replace(GPUS, environ={"PATH": str(tmp_path), **environ}),
            accelerator={"gpusPerNode": 2, "mps": {"mode": mode}},
            training={"totalEnvSteps": 1000, "device": device},
        )
        assert list(found) == ["accelerator.mps.mode"]
        assert message in found["accelerator.mps.mode"]

    def test_what_nccl_writes_counts_in_the_memory_limit(self, tmp_path: Path) -> None:
        two = {"ranksPerNode": 2}
        narrow = replace(GPUS, available_bytes=1900 << 20)
        message = refusals(tmp_path, narrow, topology=two)["topology.ranks_per_node"]
        assert "128 MiB of /dev/shm" in message
        assert "counts in the memory limit: available is 1900.0 MiB (tests)" in message
        assert "raise the container's memory limit" in message
        check_run(attempt(), tmp_path, narrow)
        check_run(attempt(topology=two), tmp_path, replace(GPUS, available_bytes=2100 << 20))

    def test_nccl_needs_shared_memory_and_we_do_not(self, tmp_path: Path) -> None:
        small = {"shared_bytes": 100 << 20}
        two = {"ranksPerNode": 2}
        message = refusals(tmp_path, replace(GPUS, **small), topology=two)[
            "topology.ranks_per_node"
        ]
        assert "128 MiB of /dev/shm" in message
        assert "100.0 MiB are free" in message
        check_run(attempt(), tmp_path, replace(GPUS, **small))
        check_run(attempt(topology=two), tmp_path, replace(ROOMY, **small))


class TestResume:
    def commit(self, run: Path, subject: CheckpointSubject) -> None:
        fence = Fence(run / ".drivetrain/attempts", 1)
        fence.take()
        store = CheckpointStore(run / "checkpoints", subject=subject, keep=3, fence=fence)
        draft = store.draft(10)
        draft.write("learner", {})
        store.commit(draft, parts=["learner"], iteration=0)

    def subject(self, storage: Path, **spec: Any) -> CheckpointSubject:
        checked = check_run(attempt(**spec), storage, ROOMY)
        return CheckpointSubject.of(checked.spec, checked.task)

    def test_a_sound_checkpoint_is_taken(self, tmp_path: Path) -> None:
        self.commit(tmp_path / "old", self.subject(tmp_path))
        for path in ("old", "old/checkpoints/step_000000000010", str(tmp_path / "old")):
            check_run(attempt(checkpoint={"resumeFrom": path}), tmp_path, ROOMY)

    def test_one_of_another_network_is_refused(self, tmp_path: Path) -> None:
        self.commit(tmp_path / "old", self.subject(tmp_path))
        algo = {"name": "sac", "numEnvs": 4, "replayRows": 9000, "actorHidden": [8]}
        found = refusals(tmp_path, checkpoint={"resumeFrom": "old"}, algo=algo)
        assert "actor_hidden" in found["checkpoint.resume_from"]

    def test_a_truncated_one_is_refused(self, tmp_path: Path) -> None:
        self.commit(tmp_path / "old", self.subject(tmp_path))
        part = tmp_path / "old/checkpoints/step_000000000010/learner.pt"
        part.write_bytes(part.read_bytes()[:50])
        found = refusals(tmp_path, checkpoint={"resumeFrom": "old"})
        assert "truncated: 50 bytes" in found["checkpoint.resume_from"]

    def test_it_no_longer_matters_once_the_run_has_its_own(self, tmp_path: Path) -> None:
        spec = {"checkpoint": {"resumeFrom": "gone"}}
        assert "checkpoint.resume_from" in refusals(tmp_path, **spec)
        own = RunDirectory.claim(attempt(**spec), tmp_path)
        assert "checkpoint.resume_from" in refusals(tmp_path, **spec)
        self.commit(own.path, self.subject(tmp_path))
        check_run(attempt(**spec), tmp_path, ROOMY)


V2 = {
    "proc/self/cgroup": "0::/pod/trainer\n",
    "proc/self/mountinfo": "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
    "sys/fs/cgroup/pod/memory.max": f"{2 * GIB}\n",
    "sys/fs/cgroup/pod/memory.current": f"{GIB}\n",
    "sys/fs/cgroup/pod/trainer/memory.max": "max\n",
    "sys/fs/cgroup/pod/trainer/memory.current": f"{GIB}\n",
}
V1 = {
    "proc/self/cgroup": "5:memory:/pod/trainer\n0::/\n",
    "proc/self/mountinfo": "35 31 0:32 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n",
    "sys/fs/cgroup/memory/pod/memory.limit_in_bytes": f"{3 * GIB}\n",
    "sys/fs/cgroup/memory/pod/memory.usage_in_bytes": f"{2 * GIB}\n",
    "sys/fs/cgroup/memory/pod/trainer/memory.limit_in_bytes": f"{1 << 62}\n",
    "sys/fs/cgroup/memory/pod/trainer/memory.usage_in_bytes": f"{2 * GIB}\n",
}


@pytest.mark.parametrize("files", [V2, V1], ids=["nested v2", "nested v1"])
def test_the_limit_of_the_pod_above_counts(tmp_path: Path, files: dict[str, str]) -> None:
    plenty = "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n"
    for name, content in {"proc/meminfo": plenty, **files}.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    machine = Machine.of_pod({}, tmp_path)
    assert machine.available_bytes == GIB
    assert "/pod/memory." in machine.memory_source
    storage = tmp_path / "storage"
    storage.mkdir()
    message = next(iter(refusals(storage, machine).values()))
    assert f"available is 1024.0 MiB ({machine.memory_source})" in message


def test_this_machine_can_be_asked() -> None:
    machine = Machine.of_pod({})
    assert machine.available_bytes > 0
    assert machine.memory_source
