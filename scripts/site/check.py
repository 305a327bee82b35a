"""Check the documentation without building it: what `make check` runs.

Links and their anchors lead somewhere, each page is in the navigation of mkdocs.yml, pages and
examples import public names only, commands that pages show are taken by their parsers, and each
public name says what it is. `make docs` finds the same
and more (what is in docstrings and in pages that are made), but takes longer.
"""

from __future__ import annotations

import ast
import posixpath
import re
import sys
from collections.abc import Iterator
from typing import Any

import yaml
from pymdownx.slugs import slugify

from scripts.site.pages import BESIDE, MADE, ROOT, page_of, sources, with_links
from scripts.site.public_names import definition, public_modules, public_names
from scripts.site.shown import wrong_commands

_SLUG = slugify(case="lower")
_FENCE = re.compile(r"^ *```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def problems() -> Iterator[str]:
    """Yield what is wrong, a line each."""
    pages = {page: file.read_text(encoding="utf-8") for page, file in sources().items()}
    yield from undocumented()
    yield from outside_the_navigation(set(pages))
    anchors = {page: anchors_of(text) for page, text in pages.items()}
    for page, text in pages.items():
        yield from broken_links(page, text, anchors)
        yield from wrong_commands(BESIDE.get(page, f"docs/{page}"), text)
        yield from private_imports(f"docs/{page}", "\n".join(_FENCE.findall(text)))
    for example in sorted((ROOT / "examples").glob("*.py")):
        yield from private_imports(f"examples/{example.name}", example.read_text(encoding="utf-8"))


def undocumented() -> Iterator[str]:
    """Yield public names without a docstring, and those of ``__all__`` that do not exist."""
    for module in public_modules():
        for name in public_names(module):
            found = definition(module, name)
            if found is None:
                yield f"{module}.__all__ has {name}, which is not defined or imported there"
            elif not found.documented:
                yield f"{found.path} is public ({module}.__all__) and has no docstring"


def outside_the_navigation(written: set[str]) -> Iterator[str]:
    """Yield pages that the navigation lacks, and entries without a page."""
    listed = set(_entries(yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))["nav"]))
    folders = tuple(entry for entry in listed if entry.endswith("/"))
    pages = written | set(MADE)
    for page in sorted(pages - listed):
        if not page.startswith(folders):
            yield f"docs/{page} is not in the navigation: add it to `nav` in mkdocs.yml"
    for entry in sorted(listed - pages - set(folders)):
        yield f"mkdocs.yml has {entry} in `nav`, and there is no such page"


def broken_links(page: str, text: str, anchors: dict[str, set[str]]) -> Iterator[str]:
    """Yield links of a page to files that do not exist, and to headings that pages do not have."""
    file = BESIDE.get(page, f"docs/{page}")
    broken: list[str] = []

    def check(target: str, anchor: str) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(file), target))
        to = page_of(path) if target else page
        if to not in MADE:
            if target and not (ROOT / path).exists():
                broken.append(f"{file} has a link to {target}, which does not exist")
            elif anchor and to is not None and anchor[1:] not in anchors.get(to, ()):
                broken.append(f"{file} has a link to {target}{anchor}: no heading has that anchor")
        return target

    with_links(text, check)
    return iter(broken)


def anchors_of(text: str) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the site make them."""
    outside = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    anchors: set[str] = set()
    for heading in re.findall(r"^#+ +(.+?) *$", outside, re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        slug = str(_SLUG(plain, "-"))
        number = 0
        while (again := f"{slug}_{number}" if number else slug) in anchors:
            number += 1
        anchors.add(again)
    return anchors


def private_imports(file: str, code: str) -> Iterator[str]:
    """Yield names of penstock that a page or an example imports and that are not public."""
    modules = set(public_modules())
    for node in _statements(code):
        module = (node.module or "") if isinstance(node, ast.ImportFrom) else ""
        if module.partition(".")[0] != "penstock":
            continue
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            if f"{module}.{alias.name}" in modules:
                continue
            if module not in modules or alias.name not in public_names(module):
                yield f"{file} imports {alias.name} from {module}, where it is not public"


def _statements(code: str) -> Iterator[ast.AST]:
    """Return the import statements in a text, which need not be a whole program."""
    imports = re.findall(r"^ *(from penstock[\w.]* import (?:\([^)]*\)|.*))", code, re.MULTILINE)
    return (node for each in imports for node in ast.walk(ast.parse(each)))


def _entries(nav: Any) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    else:
        for each in nav.values() if isinstance(nav, dict) else nav:
            yield from _entries(each)


def main() -> None:
    """Print the problems; the exit status is 1 if there are any."""
    found = list(problems())
    for each in found:
        print(f"docs: {each}", file=sys.stderr)
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
