"""The documentation's site: what its quick check finds, and what is on the pages that are made."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.site.check import anchors_of, broken_links, private_imports, problems
from scripts.site.commands import all_commands
from scripts.site.pages import ROOT, for_the_site
from scripts.site.public_names import definition, public_modules, public_names
from scripts.site.shown import wrong_commands


def test_the_check_finds_nothing() -> None:
    assert list(problems()) == []


@pytest.mark.parametrize(
    ("link", "found"),
    [
        ("tour.md", ""),
        ("tour.md#words", ""),
        ("tour.md#no-such-words", "no heading has that anchor"),
        ("no-such-page.md", "does not exist"),
        ("../deploy/README.md#container", ""),
        ("https://spark.apache.org", ""),
        ("commands.md#penstock-doctor", ""),
    ],
)
def test_links_that_lead_nowhere_are_found(link: str, found: str) -> None:
    anchors = {"tour.md": {"words"}, "deploy.md": {"container"}}
    told = list(broken_links("http.md", f"See [this]({link}), and `[code](x.md)`.", anchors))
    assert found in " ".join(told)
    assert len(told) == (1 if found else 0)


def test_anchors_are_those_of_github() -> None:
    text = "# A `b.c` -- d\n## [x](y.md), z\n## E\n## E\n```sh\n# no heading\n```\n"
    assert anchors_of(text) == {"a-bc----d", "x-z", "e", "e_1"}


def test_a_page_that_imports_what_is_not_public_is_found() -> None:
    code = "from penstock.streaming import StreamingContext, Secret\nfrom penstock.conf import x\n"
    assert [line.split(" imports ")[1] for line in private_imports("docs/a.md", code)] == [
        "Secret from penstock.streaming, where it is not public",
        "x from penstock.conf, where it is not public",
    ]


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("    penstock journal ls DIR  # that of a program\n", ""),
        ("```sh\nA=1 penstock rate set 5 --checkpoint D 2> log | head; ls\n```\n", ""),
        ("```sh\npenstock ingest tail a \\\n    --journal j --stream s &\n```\n", ""),
        ("```python\npenstock nothing\n```\n", ""),
        ("```\n$ penstock journal ls D\npenstock printed this\n```\n", ""),
        ("    penstock journal list DIR\n", "there is no command list"),
        ("    penstock journal ls DIR --lines 3\n", "--lines"),
        ("    penstock journal skip DIR\n", "Missing parameter: stream"),
        ("    penstock --log-format json --install-completion\n", ""),
        ("    penstock --log json\n", "there is no option --log"),
        ("    penstock checkpoint inspect DIR --last three\n", "three"),
        ("See `penstock checkpoint inspect|validate` and `penstock ingest --ui-port`.", ""),
        ("See `penstock checkpoint look`.", "there is no command look"),
        ("See `penstock journal ls DIR --lines 3`.", "there is no option --lines"),
    ],
)
def test_commands_that_the_command_line_refuses_are_found(shown: str, found: str) -> None:
    told = list(wrong_commands("docs/a.md", shown))
    assert found in " ".join(told)
    assert len(told) == (1 if found else 0)


def test_links_of_files_beside_the_docs_lead_to_their_pages() -> None:
    text = "[a](docs/tour.md#words) [b](LICENSE) [c](CHANGELOG.md) ![d](docs/pictures/record.svg)"
    there = "[a](tour.md#words) b [c](changelog.md) ![d](pictures/record.svg)"
    assert for_the_site("index.md", text) == there
    assert for_the_site("kafka.md", "[f](../examples/a_b.py)") == "[f](examples.md#a_bpy)"
    assert for_the_site("adr/1.md", "[e](../../deploy/README.md)") == "[e](../deploy.md)"


def test_the_pictures_are_what_their_script_draws() -> None:
    sys.path.insert(0, str(ROOT / "docs" / "pictures"))
    try:
        from draw import FOLDER, PICTURES
    finally:
        sys.path.pop(0)
    for name, draw in PICTURES.items():
        assert (FOLDER / f"{name}.svg").read_text(encoding="utf-8") == draw().svg()


@pytest.mark.slow
def test_the_site_is_whole_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "-d", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    pages = {path: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    loads = re.compile(
        r"<(?:script|img|link|iframe)\b[^>]*\b(?:src|href)=\"?((?:https?:)?//[^\"> ]+)"
    )
    assert {url for text in pages.values() for url in loads.findall(text)} == set()
    commands = pages[tmp_path / "commands.html"]
    anchors = {typed: f'id="{typed.replace(" ", "-")}"' for typed in all_commands()}
    assert [typed for typed, anchor in anchors.items() if anchor not in commands] == []
    for module in public_modules():
        page = pages[tmp_path / "api" / f"{module}.html"]
        paths = {definition(module, name) for name in public_names(module)}
        assert [each.path for each in paths if each and f'id="{each.path}"' not in page] == []


def test_messages_that_troubleshooting_quotes_are_those_of_the_code() -> None:
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    sources = "".join(path.read_text(encoding="utf-8") for path in ROOT.glob("src/**/*.py"))
    code = re.sub(r'"\s*f?"', "", sources)  # a text that goes on in the next line
    quoted = re.findall(r'"([a-z].*?)"', "\n".join(re.findall(r"^### .*$", page, re.MULTILINE)))
    quoted += re.findall(r"log says `(.*?)`", page)
    parts = [part.strip(" ,") for text in quoted for part in text.split("...")]
    assert len(parts) > 5
    assert [part for part in parts if part not in code] == []


def test_tests_that_pages_name_exist() -> None:
    rows = (ROOT / "docs" / "bugs.md").read_text(encoding="utf-8").splitlines()
    named = {name for row in rows for name in re.findall(r"`(test_\w+)` \|$", row)}
    assert len(named) > 30
    files = [*ROOT.glob("tests/**/test_*.py"), *ROOT.glob("tests/**/*_suite.py")]
    tests = "".join(path.read_text(encoding="utf-8") for path in files)
    assert {name for name in named if f"def {name}(" not in tests} == set()
    tried = (ROOT / "docs" / "tried.md").read_text(encoding="utf-8")
    tried_in = re.findall(r"`(tests/[\w/]+\.py)`", tried)
    assert len(tried_in) > 5
    assert [file for file in tried_in if not (ROOT / file).exists()] == []
