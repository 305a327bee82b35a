"""What open_storage takes, and what it refuses at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import fsspec.registry  # noqa: F401 - its table is changed by name below
import pytest

from penstock.errors import ConfigError
from penstock.storage import open_storage
from penstock.storage.local import LocalStorage
from penstock.storage.protocols import EXCLUSIVE, REFUSED


@pytest.mark.parametrize(
    "form", ["{}", "file://{}", "file:{}", "FILE://localhost{}", "{}/", "{}/."]
)
def test_local_forms_mean_the_same_folder(tmp_path: Path, form: str) -> None:
    storage = open_storage(form.format(tmp_path / "a b%20"))

    assert isinstance(storage, LocalStorage)
    assert storage.url == f"file://{tmp_path}/a b%20"
    assert open_storage(storage.url).url == storage.url


def test_path_objects_are_taken(tmp_path: Path) -> None:
    assert open_storage(tmp_path).url == f"file://{tmp_path}"


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("", "is not a path or URL"),
        (None, "is not a path or URL"),
        (b"/tmp", "is not a path or URL"),
        (7, "is not a path or URL"),
        ("file://host/x", "names a host"),
        ("file:relative", "names a host or a relative path"),
        ("s3:/bucket/x", "no '://'"),
        ("c:folder", "no '://'"),
        ("nosuch://x", "unknown scheme"),
        ("simplecache::s3://x", "unknown scheme"),
        ("http://example.com/x", "not known to create files exclusively"),
        ("memory://", "no bucket"),
        ("memory://a//b", "unclean path"),
        ("memory://a/../b", "unclean path"),
        ("memory://a/*", "wildcards to Spark"),
        ("abfs://container/x", "does not name the container and the account"),
        ("abfss://account.dfs.core.windows.net/x", "does not name the container and the account"),
        *((f"{scheme}://place/x", why.split("(")[0]) for scheme, why in REFUSED.items()),
    ],
)
def test_what_cannot_be_used_is_refused(url: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        open_storage(url)

    assert caught.value.operation == "open storage"
    assert caught.value.hint


@pytest.mark.parametrize("url", ["s3://KEY:SECRET@bucket/x", "abfss://c:SECRET@a.dfs.core/x"])
def test_credentials_in_urls_are_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="user name or password") as caught:
        open_storage(url)

    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "package"),
    [
        ("s3://bucket/x", "s3fs"),
        ("s3a://bucket/x", "s3fs"),
        ("gs://bucket/x", "gcsfs"),
        ("abfss://container@account.dfs.core.windows.net/x", "adlfs"),
    ],
)
def test_a_missing_driver_is_named(monkeypatch: pytest.MonkeyPatch, url: str, package: str) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    loaded = sys.modules["fsspec.registry"]._registry
    monkeypatch.delitem(loaded, url.partition(":")[0], raising=False)

    with pytest.raises(ConfigError, match="not installed") as caught:
        open_storage(url)

    assert caught.value.hint == f"pip install {package}"


def test_a_missing_client_of_hdfs_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hdfs_native", None)
    monkeypatch.delitem(sys.modules, "penstock.storage.hdfs", raising=False)

    with pytest.raises(ConfigError, match="not installed") as caught:
        open_storage("hdfs://namenode:8020/x")

    assert caught.value.hint == "pip install hdfs-native"


def test_each_protocol_is_either_usable_or_refused() -> None:
    assert not EXCLUSIVE.keys() & REFUSED.keys()
    assert all(protocol.exclusive_by for protocol in EXCLUSIVE.values())


def test_local_storage_does_not_load_fsspec(tmp_path: Path) -> None:
    program = (
        "import sys; from penstock.storage import open_storage; open_storage(sys.argv[1]); "
        "assert 'fsspec' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=True)
