"""Which names of penstock are public: what the reference has, and pages and programs may import.

Read from the source, without importing it: `make check` runs this.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).parents[2] / "src"

INTERNAL = {"clock", "cli", "conf", "model", "records", "root_cause", "shutdown"}
"""Top-level modules that programs do not import: parts that the others share, and the commands."""

DEEPER = (
    "penstock.batched.streamz",
    "penstock.checkpoint.tools",
    "penstock.kafka.spark",
    "penstock.structured.sinks",
)
"""Modules below the top level that programs import by themselves."""


class Definition(NamedTuple):
    """Where a public name is defined, and whether it says there what it is."""

    path: str
    documented: bool


def public_modules() -> list[str]:
    """Return the modules with public names: each top-level one that is not INTERNAL, and DEEPER."""
    entries = [each for each in (SOURCE / "penstock").iterdir() if each.suffix in ("", ".py")]
    names = {each.stem for each in entries if not each.name.startswith("_")} - INTERNAL
    return sorted([f"penstock.{name}" for name in names] + list(DEEPER))


def public_names(module: str) -> list[str]:
    """Return the ``__all__`` of a module."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and _target(node) == "__all__":
            return list(ast.literal_eval(node.value))
    return []


def summary(module: str) -> str:
    """Return the first paragraph of a module's docstring."""
    return (ast.get_docstring(_tree(module)) or "").partition("\n\n")[0]


def definition(module: str, name: str) -> Definition | None:
    """Follow a name through imports to where it is defined; None if it is nowhere in penstock."""
    if not module.startswith("penstock"):
        return None
    body = _tree(module).body
    for node in [*body, *_while_checking_types(body)]:
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                if (alias.asname or alias.name) == name:
                    return definition(node.module or module, alias.name)
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
            return Definition(f"{module}.{name}", ast.get_docstring(node) is not None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and _target(node) == name:
            return Definition(f"{module}.{name}", _is_text(after))
    return None


def methods(path: str) -> list[str]:
    """Return the public methods of a class and of the parts that it is put together of.

    What the engine calls, which DStream has from its base, is not for programs.
    """
    module, _, name = path.rpartition(".")
    (node,) = (n for n in _tree(module).body if isinstance(n, ast.ClassDef) and n.name == name)
    parts = [definition(module, base.id) for base in node.bases if isinstance(base, ast.Name)]
    found = [each.name for each in node.body if isinstance(each, ast.FunctionDef)]
    for part in filter(None, parts):
        found += methods(part.path)
    hidden = set() if name == _ENGINE_SIDE.rpartition(".")[2] else set(methods(_ENGINE_SIDE))
    return [each for each in found if not each.startswith("_") and each not in hidden]


_ENGINE_SIDE = "penstock.streaming.core.base.BaseDStream"


@cache
def _tree(module: str) -> ast.Module:
    path = SOURCE.joinpath(*module.split("."))
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text(encoding="utf-8"))


def _target(node: ast.Assign | ast.AnnAssign) -> str:
    target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _while_checking_types(body: list[ast.stmt]) -> list[ast.stmt]:
    """Return what is imported under ``if TYPE_CHECKING``: packages that import names when asked."""
    return [inner for node in body if isinstance(node, ast.If) for inner in node.body]


def _is_text(node: ast.stmt | None) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
