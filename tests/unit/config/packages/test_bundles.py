"""Bundles are checked as a whole before anything is unpacked, and what leaves the folder is refused."""

from __future__ import annotations

import json
import stat
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_optimizer.config.packages import bundles
from mcp_optimizer.config.packages.bundles import read_bundle, unpacked
from mcp_optimizer.errors import ConfigurationError

MANIFEST = json.dumps({"name": "weather", "version": "1.0.0", "server": {"type": "node", "entry_point": "a.js"}})


def zipped(path: Path, files: dict[str, bytes | str], modes: dict[str, int] | None = None, **options: Any) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, **options) as archive:
        for name, content in {"manifest.json": MANIFEST, **files}.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = (modes or {}).get(name, stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)
    return path


def test_a_bundle_is_unpacked_for_its_owner_only(tmp_path: Path) -> None:
    path = zipped(tmp_path / "w.mcpb", {"bin/run": "x", "lib/a.js": "y"}, {"bin/run": stat.S_IFREG | 0o755})
    bundle = read_bundle(path)
    assert bundle.files == {"manifest.json", "bin/run", "lib/a.js"}
    assert not (tmp_path / "bundles").exists()
    folder = unpacked(bundle, tmp_path / "bundles", "weather")
    assert folder == tmp_path / "bundles" / f"weather-{bundle.sha256[:32]}"
    assert (folder / "lib" / "a.js").read_text() == "y"
    assert stat.S_IMODE((folder / "bin" / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "lib" / "a.js").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert unpacked(bundle, tmp_path / "bundles", "weather") == folder
    assert [one.name for one in (tmp_path / "bundles").iterdir()] == [folder.name]


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "a/../../evil",
        "/etc/evil",
        "a//b",
        "./a",
        "C:/evil",
        "a\\..\\evil",
        "a\0b",
        "a\nb",
        "nul",
        "lpt1.txt",
        "a.",
        "a /b",
        "x" * 500,
        "/".join("a" * 50),
    ],
)
def test_a_path_that_cannot_be_used_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "w.mcpb"
    zipped(path, {"a" * len(name.encode()): "x"})
    # The zip module would tidy the name up.
    path.write_bytes(path.read_bytes().replace(b"a" * len(name.encode()), name.encode()))
    with pytest.raises(ConfigurationError, match=r"path that leaves|twice"):
        read_bundle(path)


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFIFO, stat.S_IFSOCK])
def test_links_and_devices_are_refused(tmp_path: Path, kind: int) -> None:
    path = zipped(tmp_path / "w.mcpb", {"x": "/etc/passwd"}, {"x": kind | 0o777})
    with pytest.raises(ConfigurationError, match="link or a device"):
        read_bundle(path)


@pytest.mark.parametrize(("one", "other"), [("a", "A"), ("straße", "STRASSE"), ("é", "e\u0301")])
def test_names_that_are_one_file_on_some_systems_are_refused(tmp_path: Path, one: str, other: str) -> None:
    with pytest.raises(ConfigurationError, match="twice"):
        read_bundle(zipped(tmp_path / "w.mcpb", {one: "x", other: "y"}))


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_file_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = zipped(tmp_path / "w.mcpb", {"a.js": "x"})
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("a.js", "y")
    with pytest.raises(ConfigurationError, match="twice"):
        read_bundle(path)


def test_a_file_inside_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="inside of a file"):
        read_bundle(zipped(tmp_path / "w.mcpb", {"A": "x", "a/b": "y"}))


@pytest.mark.slow
def test_a_bundle_that_unpacks_to_far_more_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="too much"):
        read_bundle(zipped(tmp_path / "w.mcpb", {"zeros": b"\0" * 20_000_000}))


def test_too_many_files_are_refused_before_they_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = zipped(tmp_path / "w.mcpb", {str(number): "" for number in range(30)})
    monkeypatch.setattr(bundles, "MOST_FILES", 20)
    with pytest.raises(ConfigurationError, match="31 files"):
        read_bundle(path)
    content = bytearray(path.read_bytes())
    struct.pack_into("<L", content, content.rfind(b"PK\x05\x06") + 12, 100_000_000)
    path.write_bytes(content)
    with pytest.raises(ConfigurationError, match="too many files"):
        read_bundle(path)


def test_a_file_that_lies_about_its_size_is_not_unpacked(tmp_path: Path) -> None:
    path = zipped(tmp_path / "w.mcpb", {"a.js": b"\0" * 100_000})
    content = bytearray(path.read_bytes())
    at = content.rfind(b"PK\x01\x02")
    struct.pack_into("<L", content, at + 24, 10)
    path.write_bytes(content)
    bundle = read_bundle(path)
    with pytest.raises(ConfigurationError, match="cannot be unpacked"):
        unpacked(bundle, tmp_path / "bundles", "weather")
    assert list((tmp_path / "bundles").iterdir()) == []


def test_a_bundle_has_the_checksum_that_was_promised(tmp_path: Path) -> None:
    path = zipped(tmp_path / "w.mcpb", {})
    assert read_bundle(path, read_bundle(path).sha256.upper())
    with pytest.raises(ConfigurationError, match="not the file that was expected"):
        read_bundle(path, "0" * 64)


def test_a_bundle_that_is_exchanged_meanwhile_is_not_unpacked(tmp_path: Path) -> None:
    path = zipped(tmp_path / "w.mcpb", {})
    bundle = read_bundle(path)
    zipped(path, {"evil": "x"})
    with pytest.raises(ConfigurationError, match="changed while"):
        unpacked(bundle, tmp_path / "bundles", "weather")


@pytest.mark.parametrize("manifest", ["", "[]", "{", "[" * 100_000, '"' + "x" * 2_000_000 + '"'])
def test_a_manifest_that_is_no_object_is_refused(tmp_path: Path, manifest: str) -> None:
    path = tmp_path / "w.mcpb"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("manifest.json", manifest)
    with pytest.raises(ConfigurationError, match="manifest"):
        read_bundle(path)


def test_what_is_no_bundle_is_said_to_be_none(tmp_path: Path) -> None:
    path = tmp_path / "w.mcpb"
    with pytest.raises(ConfigurationError, match="no bundle at"):
        read_bundle(path)
    with pytest.raises(ConfigurationError, match=r"not a readable bundle|not a file"):
        read_bundle(tmp_path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("x", "")
    with pytest.raises(ConfigurationError, match=r"no manifest\.json"):
        read_bundle(path)


@given(st.binary(max_size=300), st.integers(0, 400))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    path = zipped(tmp_path_factory.mktemp("noise") / "w.mcpb", {"a": "x"})
    content = path.read_bytes()
    path.write_bytes(content[:at] + noise + content[at + len(noise) :])
    try:
        read_bundle(path)
    except ConfigurationError:
        return
