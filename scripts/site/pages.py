"""The site's pages: those of docs/, some files beside it, and some that are made of the source."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable
from pathlib import Path

from scripts.site.public_names import public_modules

ROOT = Path(__file__).parents[2]

BESIDE = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "deploy.md": "deploy/README.md",
    "examples.md": "examples/README.md",
}
"""Pages that are files outside of docs/."""

MADE = ["commands.md", *(f"api/{module}.md" for module in public_modules())]
"""Pages that are made when the site is built."""


CODE = re.compile(r"^(```|~~~).*?^\1|`[^`\n]+`", re.DOTALL | re.MULTILINE)


def sources() -> dict[str, Path]:
    """Return the files of the pages that are written by hand, by the pages' paths in the site."""
    docs = ROOT / "docs"
    pages = {file.relative_to(docs).as_posix(): file for file in sorted(docs.rglob("*.md"))}
    return pages | {page: ROOT / file for page, file in BESIDE.items()}


def page_of(file: str) -> str | None:
    """Return the page that shows a file of the repository; None without one."""
    if file.startswith("examples/") or file == "examples":
        return "examples.md"
    if file == "docs/adr":
        return next(page for page in sources() if page.startswith("adr/"))
    beside = {path: page for page, path in BESIDE.items()}
    return beside.get(file) or (file[5:] if file.startswith("docs/") else None)


def with_links(text: str, change: Callable[[str, str], str | None]) -> str:
    """Replace the relative links of a page, outside of code, by ``change(target, anchor)``.

    Where it returns None, the link's text stays and the link goes.
    """
    hidden: list[str] = []

    def hide(found: re.Match[str]) -> str:
        hidden.append(found.group())
        return f"\0{len(hidden) - 1}\0"

    def replace(found: re.Match[str]) -> str:
        label, target, anchor = found["label"], found["target"], found["anchor"] or ""
        if "://" in target or target.startswith("mailto:"):
            return found.group()
        changed = change(target, anchor)
        return label if changed is None else f"[{label}]({changed})"

    link = r"(?<!!)\[(?P<label>[^\]]*)\]\((?P<target>[^)#\s]*)(?P<anchor>#[^)\s]*)?\)"
    replaced = re.sub(link, replace, CODE.sub(hide, text))
    return re.sub(r"\0(\d+)\0", lambda found: hidden[int(found[1])], replaced)


def for_the_site(page: str, text: str) -> str:
    """Return a page's text with its links as the site needs them: from page to page."""
    folder = posixpath.dirname(BESIDE.get(page, f"docs/{page}"))

    def change(target: str, anchor: str) -> str | None:
        if not target:
            return anchor
        file = posixpath.normpath(posixpath.join(folder, target))
        to = page_of(file)
        if to is None:
            return None
        if file.endswith(".py") and not anchor:
            anchor = f"#{posixpath.basename(file).replace('.', '')}"  # of an example
        return posixpath.relpath(to, posixpath.dirname(page) or ".") + anchor

    return with_links(text, change).replace("](docs/pictures/", "](pictures/")


def examples_page() -> str:
    """Return the page of the examples: their list, and each program."""
    folder = ROOT / "examples"
    parts = [(folder / "README.md").read_text(encoding="utf-8")]
    for file in sorted(folder.glob("*.py")):
        code = file.read_text(encoding="utf-8")
        parts.append(f"## {file.name}\n\n```python\n{code}```\n")
    return "\n".join(parts)
