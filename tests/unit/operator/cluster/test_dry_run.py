"""Answers here are word for word those of Kubernetes 1.34; tests/cluster asks the server itself."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs
from tests.support.fake_api import FakeApi, Fault, unavailable

from drivetrain_api.errors import Violation
from drivetrain_api.status import Condition, ConditionStatus, ConditionType
from drivetrain_operator.cluster import dry_run as module
from drivetrain_operator.cluster.dry_run import JobDryRun
from drivetrain_operator.cluster.errors import (
    AlreadyExistsError,
    ApiError,
    Cause,
    ForbiddenError,
    InvalidError,
    ThrottledError,
    UnavailableError,
)
from drivetrain_operator.manifests.settings import Settings
from drivetrain_operator.reconcile.snapshot import RunView

BAD = 'Job in version "v1" cannot be handled as a Job: '
SETTINGS = Settings(image="trainer:1")


def view(
    status: dict[str, Any] | None = None, generation: int = 1, uid: str = "run-1", **spec: Any
) -> RunView:
    return RunView.from_object(
        {
            "apiVersion": "drivetrain.dev/v1alpha1",
            "kind": "TrainingRun",
            "metadata": {"name": "walk", "namespace": "lab", "uid": uid, "generation": generation},
            "spec": {"algo": {"name": "sac"}, "task": {"name": "hopper"}} | spec,
            "status": status or {},
        }
    )


def template(**spec: Any) -> dict[str, Any]:
    return {"podTemplate": {"spec": spec}}


def trainer(**fields: Any) -> dict[str, Any]:
    return {"name": "trainer", **fields}


def asked(api: FakeApi, *views: RunView) -> list[tuple[Violation, ...]]:
    async def main() -> list[tuple[Violation, ...]]:
        checks = JobDryRun(api)
        return [await checks.violations(run, SETTINGS) for run in views]

    return asyncio.run(main())


def answered(error: Exception, run: RunView) -> tuple[Violation, ...]:
    return asked(FakeApi(faults=[Fault("POST jobs", error)]), run)[0]


def bad_request(words: str) -> ApiError:
    return ApiError(BAD + words, status=400, reason="BadRequest")


def invalid(*causes: tuple[str, str]) -> InvalidError:
    return InvalidError(
        "Job is invalid",
        status=422,
        reason="Invalid",
        causes=tuple(Cause(*cause) for cause in causes),
    )


# --- asking ------------------------------------------------------------------------------


def test_the_job_of_the_next_attempt_is_sent_strictly_and_not_kept() -> None:
    api = FakeApi()
    assert asked(api, view({"attempt": 3}, **template(nodeSelector={"a": "b"}))) == [()]
    (call,) = api.calls
    assert call.words == "POST jobs"
    assert call.namespace == "lab"
    assert call.params == {
        "dryRun": "All",
        "fieldValidation": "Strict",
        "fieldManager": "drivetrain-operator",
    }
    assert call.body["metadata"]["name"] == "walk-a4"
    assert call.body["spec"]["template"]["spec"]["nodeSelector"] == {"a": "b"}
    assert api.objects == {}


def test_a_generation_is_asked_about_once() -> None:
    error = invalid(("spec.template.spec.dnsPolicy", "Unsupported value"))
    api = FakeApi(faults=[Fault("POST jobs", error)])
    bad = template(dnsPolicy="Foo")
    first, second, edited, other = asked(
        api, view(**bad), view(**bad), view(generation=2), view(uid="run-2")
    )
    assert first == second == (Violation("pod_template.spec.dnsPolicy", "Unsupported value"),)
    assert edited == other == ()
    assert len(api.calls) == 3


def test_a_good_verdict_is_remembered_too() -> None:
    api = FakeApi()
    asked(api, view(), view(), view())
    assert len(api.calls) == 1


def condition(type_: ConditionType, status: ConditionStatus, generation: int) -> dict[str, Any]:
    found = Condition(
        type=type_,
        status=status,
        reason="R",
        last_transition_time="2026-03-01T12:00:00Z",  # type: ignore[arg-type]
        observed_generation=generation,
    )
    return {"conditions": [found.model_dump(mode="json", by_alias=True)]}


@pytest.mark.parametrize(
    ("run", "asks"),
    [
        (view(), True),
        (view(condition(ConditionType.ACCEPTED, ConditionStatus.TRUE, 1)), False),
        (view(condition(ConditionType.ACCEPTED, ConditionStatus.TRUE, 1), generation=2), True),
        (view(condition(ConditionType.ACCEPTED, ConditionStatus.FALSE, 1)), True),
        (view(condition(ConditionType.COMPLETE, ConditionStatus.TRUE, 1), generation=2), False),
        (view(condition(ConditionType.FAILED, ConditionStatus.TRUE, 1), generation=2), False),
        (view(algo={"name": "nonsense"}), False),
        (view(**template(containers="no list")), False),
        (view(**template(restartPolicy="Always")), False),
    ],
    ids=[
        "new",
        "accepted before",
        "edited since",
        "refused before",
        "complete",
        "failed",
        "unreadable spec",
        "overlay that cannot be laid over",
        "overlay that is refused already",
    ],
)
def test_only_what_matters_is_asked(run: RunView, asks: bool) -> None:
    api = FakeApi()
    assert asked(api, run) == [()]
    assert bool(api.calls) == asks


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 3)
    api = FakeApi()
    asked(api, *(view(uid=f"run-{n}") for n in range(5)), view(uid="run-4"), view(uid="run-0"))
    assert len(api.calls) == 6


# --- what the answers mean ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "run", "violations"),
    [
        (
            bad_request(
                'strict decoding error: unknown field "spec.template.spec.containers[0].resorces", '
                'unknown field "spec.template.spec.nodeSelecter"'
            ),
            view(**template(containers=[trainer(resorces={})], nodeSelecter={})),
            [
                ("pod_template.spec.containers[0].resorces", "unknown field"),
                ("pod_template.spec.nodeSelecter", "unknown field"),
            ],
        ),
        (
            bad_request(
                "json: cannot unmarshal string into Go struct field ContainerPort.spec.template."
                "spec.containers.ports.containerPort of type int32"
            ),
            view(**template(containers=[trainer(ports=[{"containerPort": "x"}])])),
            [
                (
                    "pod_template.spec.containers.ports.containerPort",
                    "must be of type int32; got string",
                )
            ],
        ),
        (
            bad_request("quantities must match the regular expression '^x$'"),
            view(**template(containers=[trainer(resources={"limits": {"cpu": "1x"}})])),
            [("pod_template", "quantities must match the regular expression '^x$'")],
        ),
        (
            # The overlay's first container is the second of the merged template.
            invalid(
                (
                    "spec.template.spec.containers[1].resources.requests",
                    'Invalid value: "2": must be less than or equal to cpu limit of 1',
                )
            ),
            view(**template(containers=[{"name": "side", "resources": {"requests": {}}}])),
            [
                (
                    "pod_template.spec.containers[0].resources.requests",
                    'Invalid value: "2": must be less than or equal to cpu limit of 1',
                )
            ],
        ),
        (
            invalid(("spec.template.spec.initContainers[0].image", "Required value")),
            view(**template(initContainers=[{"name": "i"}])),
            [("pod_template.spec.initContainers[0].image", "Required value")],
        ),
        (
            invalid(("spec.template.labels", "Invalid value")),
            view(podTemplate={"metadata": {"labels": {"a b": "c"}}}),
            [("pod_template.labels", "Invalid value")],
        ),
        (
            invalid(("spec.template.spec.volumes[5].name", "Invalid value")),
            view(**template(volumes=[{"name": "A B"}])),
            [("pod_template.spec.volumes[0].name", "Invalid value")],
        ),
        (
            invalid(("spec.template.spec.imagePullSecrets[1].name", "Invalid value")),
            view(**template(imagePullSecrets=[{"name": "a"}, {"name": "A B"}])),
            [("pod_template.spec.imagePullSecrets[1].name", "Invalid value")],
        ),
        (
            invalid(
                ("spec.template.spec.containers[0].resources.limits[gpu]", "bad"),
                ("spec.template.spec.containers[0].resources.limits[gpu]", "bad"),
            ),
            view(
                accelerator={"gpusPerNode": 1, "resourceName": "gpu"},
                **template(containers=[trainer(resources={"limits": {"memory": "1Gi"}})]),
            ),
            [("accelerator.resource_name", "bad")],
        ),
        (
            invalid(("spec.template.spec.containers[0].resources.limits[x.io/a]", "bad")),
            view(**template(containers=[trainer(resources={"limits": {"x.io/a": "1"}})])),
            [("pod_template.spec.containers[0].resources.limits.x.io/a", "bad")],
        ),
        (
            invalid(("metadata.labels", "bad")),
            view(queueName="bad_-"),
            [("queue_name", "bad")],
        ),
        (
            invalid(("spec.template.spec.schedulerName", "bad")),
            view(schedulerName="b"),
            [("scheduler_name", "bad")],
        ),
        (
            invalid(("spec.template.spec.containers[0].image", "bad")),
            view(image=" "),
            [("image", "bad")],
        ),
        (
            invalid(("spec.template.spec.volumes[1].persistentVolumeClaim.claimName", "bad")),
            view(storage={"claimName": "A B"}),
            [("storage", "bad")],
        ),
        (
            invalid(("spec.template.spec.volumes[3].emptyDir.sizeLimit", "bad")),
            view(),
            [("", "the Job's spec.template.spec.volumes[3].emptyDir.sizeLimit: bad")],
        ),
        (
            invalid(("spec.podFailurePolicy", "bad")),
            view(),
            [("", "the Job's spec.podFailurePolicy: bad")],
        ),
        (
            invalid(("spec.template.spec.containers[9].image", "bad")),
            view(**template(dnsPolicy="Default")),
            [("pod_template.spec.containers[9].image", "bad")],
        ),
    ],
)
def test_words_lead_back_to_the_spec(
    error: Exception, run: RunView, violations: list[tuple[str, str]]
) -> None:
    assert answered(error, run) == tuple(Violation(*each) for each in violations)


@pytest.mark.parametrize(
    "error",
    [
        ForbiddenError("exceeded quota: q", status=403, reason="Forbidden"),
        ForbiddenError(
            "being terminated", status=403, causes=(Cause("metadata.namespace", "ends"),)
        ),
        InvalidError(
            "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: team label needed",
            status=422,
            reason="Invalid",
            causes=(Cause("", "ValidatingAdmissionPolicy 'p' denied request"),),
        ),
        ApiError("admission webhook does not support dry run", status=400, reason="BadRequest"),
        UnavailableError("failed calling webhook", status=500, reason="InternalError"),
    ],
    ids=["quota", "namespace", "policy", "webhook without dry run", "webhook that is down"],
)
def test_what_is_not_about_the_spec_refuses_nothing_and_is_not_remembered(
    error: Exception,
) -> None:
    api = FakeApi(faults=[Fault("POST jobs", error, times=1)])
    with capture_logs() as logs:
        assert asked(api, view(), view()) == [(), ()]
    assert len(api.calls) == 2
    assert [entry["error"] for entry in logs] == [str(error)]


def test_a_job_of_that_name_proves_the_rest_fine() -> None:
    assert answered(AlreadyExistsError("there", status=409), view()) == ()


@pytest.mark.parametrize(
    "error", [unavailable(503), unavailable(0), ThrottledError("slow", status=429)]
)
def test_trouble_is_raised_to_be_tried_again(error: Exception) -> None:
    api = FakeApi(faults=[Fault("POST jobs", error)])

    async def main() -> None:
        checks = JobDryRun(api)
        with pytest.raises(type(error)):
            await checks.violations(view(), SETTINGS)
        assert await checks.violations(view(), SETTINGS) == ()

    asyncio.run(main())
    assert len(api.calls) == 2
