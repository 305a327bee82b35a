"""The standalone cluster of docs/clusters.md: started, used, killed and stopped as written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import blocks, shell
from tests.free_port import free_port

PAGE = "clusters.md"


@pytest.mark.soak
@pytest.mark.spark
def test_a_standalone_cluster_works_as_written(tmp_path: Path) -> None:
    master, web = free_port(), free_port()

    def here(text: str) -> str:
        return text.replace("7077", str(master)).replace("8081", str(web))

    (lines,) = blocks(PAGE, "python")
    (tmp_path / "lines.py").write_text(lines)
    printed = shell([here(each) for each in blocks(PAGE, "bash")], tmp_path, within_s=500)
    assert "lines (string)" in printed, printed
    assert "1500 records" in printed, printed
    assert "all sound" in printed, printed
