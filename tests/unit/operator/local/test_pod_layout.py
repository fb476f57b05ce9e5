from __future__ import annotations

from pathlib import Path

import pytest

from drivetrain_operator.local.pod_layout import Layout, PodStartError, lay_out

LAYOUT = Layout(
    {
        "/var/lib/drivetrain": Path("/tmp/etc/drivetrain"),
        "/etc/drivetrain": Path("/x"),
        "/tmp": Path("/t"),
    }
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/etc/drivetrain/run.json", "/x/run.json"),
        ("/etc/drivetrain", "/x"),
        ("/etc/drivetrained", "/etc/drivetrained"),
        ("/my/etc/drivetrain", "/my/etc/drivetrain"),
        ("file:/tmp/a:/etc/drivetrain/b", "file:/t/a:/x/b"),
        ("--out=/tmp", "--out=/t"),
        ("/var/lib/drivetrain/logs", "/tmp/etc/drivetrain/logs"),
        ("nothing", "nothing"),
    ],
)
def test_mount_paths_are_translated_once(text: str, expected: str) -> None:
    assert LAYOUT.translate(text) == expected


def test_without_mounts_nothing_changes() -> None:
    assert Layout({}).translate("/tmp/x") == "/tmp/x"


POD = {
    "metadata": {"uid": "0123456789abcdef"},
    "spec": {
        "volumes": [
            {"name": "code", "configMap": {"name": "c", "items": [{"key": "a", "path": "b/c"}]}},
            {"name": "host", "hostPath": {"path": "/srv"}},
            {"name": "data", "emptyDir": {}},
            {"name": "claim", "persistentVolumeClaim": {"claimName": "x"}},
            {"name": "gone", "configMap": {"name": "none"}},
        ]
    },
}


def test_volumes_become_folders(tmp_path: Path) -> None:
    mounts = [
        {"name": "code", "mountPath": "/code"},
        {"name": "data", "mountPath": "/data/", "subPath": "part"},
        {"name": "claim", "mountPath": "/claim"},
        {"name": "shm", "mountPath": "/dev/shm"},
    ]
    config_maps = {"c": {"data": {"a": "text", "z": "not asked for"}}}
    for _ in range(2):  # a second start of the same pod finds read-only files
        layout = lay_out(
            POD,
            {"volumeMounts": mounts},
            work=tmp_path / "work",
            storage=tmp_path / "storage",
            config_maps=config_maps,
        )
    code = tmp_path / "work/volumes/code"
    assert layout.folders == {
        "/code": code,
        "/data": tmp_path / "work/volumes/data/part",
        "/claim": tmp_path / "storage",
    }
    assert [str(p.relative_to(code)) for p in code.rglob("*") if p.is_file()] == ["b/c"]
    assert (code / "b/c").read_text() == "text"
    assert (code / "b/c").stat().st_mode & 0o777 == 0o444


@pytest.mark.parametrize(
    ("mount", "words"),
    [
        ({"name": "gone", "mountPath": "/x"}, 'configmap "none" not found'),
        ({"name": "nowhere", "mountPath": "/x"}, "no volume 'nowhere' for /x"),
    ],
)
def test_what_is_missing_is_named(tmp_path: Path, mount: dict[str, str], words: str) -> None:
    with pytest.raises(PodStartError, match=words):
        lay_out(POD, {"volumeMounts": [mount]}, work=tmp_path, storage=tmp_path, config_maps={})
