"""Pods that are taken away, do not go, run out of memory, die or hang: the run goes on."""

from __future__ import annotations

import signal
from contextlib import suppress

import pytest
from tests.e2e.cluster.faults.trial import (
    NAME,
    SHARED_BYTES,
    Trial,
    condition_of,
    limited,
)
from tests.support.kubernetes.kubectl import CommandError, Kubectl

from drivetrain_api.exit_codes import ExitCode

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

STALL_S = 10
KILLED = 128 + signal.SIGKILL


def test_a_deleted_pod_counts_and_loses_no_step(trial: Trial) -> None:
    trial.start()
    checkpoint = trial.trains()
    assert trial.processes(1).shared_memory_bytes() == SHARED_BYTES

    trial.api.delete("v1", "Pod", trial.pod(1)["metadata"]["name"], trial.namespace)

    trial.resumes("AttemptFailed", counted=True, checkpoint=checkpoint, code=ExitCode.CHECKPOINTED)
    (ended,) = trial.endings(1).values()
    assert ended.code == ExitCode.CHECKPOINTED
    assert ended.digest is not None
    assert ended.digest.exit_code == ExitCode.CHECKPOINTED
    assert trial.steps(2)[0] >= trial.steps(1)[-1], "it goes on where SIGTERM found it"


def test_a_pod_that_ignores_its_end_is_killed_before_another_begins(trial: Trial) -> None:
    trial.start()
    checkpoint = trial.trains()
    trial.processes(1).send(signal.SIGSTOP)

    trial.evict(trial.pod(1)["metadata"]["name"])

    held = trial.tells("Restarting", "True", "BackingOff")
    assert "Disrupted" in condition_of(held, "Restarting")["message"], held
    trial.resumes("Disrupted", counted=False, checkpoint=checkpoint, code=None)
    (ended,) = trial.endings(1).values()
    assert (ended.code, ended.digest) == (KILLED, None)


def test_too_little_memory_is_refused_before_it_runs_out(trial: Trial) -> None:
    trial.start(podTemplate=limited("400Mi"))

    status = trial.tells("Failed", "True", "NonRetryableExit", "needs too much memory")

    (record,) = status["history"]
    assert (record["reason"], record["exitCode"]) == ("NonRetryableExit", 2), status
    assert f"{400 << 20} bytes" in record["message"], status
    assert (status["attempt"], status["restarts"]) == (1, 0), status
    assert trial.endings(1)[0].code == ExitCode.REFUSED
    trial.witness.check()


def test_memory_that_runs_out_is_named_and_counted(trial: Trial, namespace: Kubectl) -> None:
    trial.start(podTemplate=limited("1300Mi"))
    checkpoint = trial.trains()
    pod = trial.pod(1)["metadata"]["name"]

    fill = ("dd", "if=/dev/zero", "of=/dev/shm/fill", "bs=1M", "count=1000")
    with suppress(CommandError):  # it may be what is killed
        namespace("exec", pod, "--", *fill)

    trial.trains(2)
    ended = trial.endings(1)[0]
    assert ended.reason == "OOMKilled"
    if ended.digest is None:  # the kernel chose the launcher
        assert ended.code == KILLED, ended
    else:
        assert "out of memory (the kernel killed" in ended.digest.message, ended
    status = trial.resumes("OOMKilled", counted=True, checkpoint=checkpoint, code=ended.code)
    assert "OOMKilled" in status["history"][0]["message"], status


def test_a_rank_that_dies_in_the_other_pod_ends_the_attempt(trial: Trial) -> None:
    trial.start(topology={"nodes": 2})
    checkpoint = trial.trains()
    rank = trial.processes(1, index=1).rank(1)
    assert rank is not None

    rank.kill()

    status = trial.resumes("AttemptFailed", counted=True, checkpoint=checkpoint, code=1)
    words = "exit code 1: rank 1 was killed by SIGKILL"
    assert words in status["history"][0]["message"], trial.endings(1)
    ended = trial.endings(1)[1]
    assert ended.code == ExitCode.FAILED
    assert ended.digest is not None
    assert ended.digest.message.startswith("rank 1 was killed by SIGKILL in ")


def test_a_rank_that_hangs_is_a_stall(trial: Trial) -> None:
    trial.start()
    checkpoint = trial.trains()
    rank = trial.processes(1).rank(0)
    assert rank is not None

    rank.suspend()
    trial.change(NAME, restart={"stallSeconds": STALL_S})

    hung = trial.tells("Stalled", "True", "NoProgress", f"no progress for {STALL_S} s at ")
    trial.change(NAME, restart={"stallSeconds": 600})  # the next one may be slow to start
    assert hung["history"][0]["reason"] == "Stalled", hung
    status = trial.resumes("Stalled", counted=True, checkpoint=checkpoint, code=None)
    assert condition_of(status, "Stalled")["status"] == "False", status
