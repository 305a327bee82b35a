"""What mkdocs does for this site beyond its settings: pages from elsewhere, and their links."""

from __future__ import annotations

import re
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pymdownx.slugs import slugify

from scripts.site.commands import commands_page
from scripts.site.pages import BESIDE, ROOT, examples_page, for_the_site, sources
from scripts.site.public_names import definition, methods, public_modules, public_names, summary

_WHOLE = ("DStream", "StreamingContext")
"""Classes that are put together of parts: they come first, with the methods of these."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name anchors as GitHub does, and put the pages of folders in the navigation."""
    config.mdx_configs["toc"]["slugify"] = slugify(case="lower")
    config.nav = _expanded(config.nav)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are not in docs/."""
    made = {page: (ROOT / file).read_text(encoding="utf-8") for page, file in BESIDE.items()}
    made |= {"commands.md": commands_page(), "examples.md": examples_page()}
    made |= {f"api/{module}.md": _api_page(module) for module in public_modules()}
    for page, text in made.items():
        files.append(File.generated(config, page, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Make links to files of the repository links to their pages."""
    return for_the_site(page.file.src_uri, markdown)


def _expanded(nav: Any) -> Any:
    """Replace each entry of the navigation that ends with "/" by the pages of that folder."""
    if isinstance(nav, dict):
        return {title: _expanded(inner) for title, inner in nav.items()}
    if not isinstance(nav, list):
        return nav
    entries: list[Any] = []
    for each in nav:
        is_folder = isinstance(each, str) and each.endswith("/")
        entries += _pages_in(each) if is_folder else [_expanded(each)]
    return entries


def _pages_in(folder: str) -> list[Any]:
    if folder == "api/":
        return [{module: f"api/{module}.md"} for module in public_modules()]
    return [page for page in sources() if page.startswith(folder)]


def _api_page(module: str) -> str:
    parts = [f"# {module}\n\n{_plain(summary(module))}\n"]
    for name in sorted(
        public_names(module), key=lambda name: (name not in _WHOLE, name != "StreamingContext")
    ):
        found = definition(module, name)
        if found is None:
            raise ValueError(f"{module}.__all__ has {name}, which is not defined")
        parts.append(f"::: {found.path}\n")
        if name in _WHOLE:
            shown = ", ".join(dict.fromkeys(methods(found.path)))
            parts[-1] += f"    options: {{inherited_members: true, members: [{shown}]}}\n"
    return "\n".join(parts)


def _plain(text: str) -> str:
    return re.sub(r"``(.+?)``", r"`\1`", text)
