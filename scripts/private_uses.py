"""Finds uses of private names of other packages in penstock's sources.

A name is another's if it begins with one underscore, is reached through an attribute or an import,
and nothing in penstock defines it. PySpark's doors to the JVM are the exception, as there are no
others (``PYSPARK``), and names that their packages document (``DOCUMENTED``, and the codes of
confluent-kafka's client, as ``KafkaError._TIMED_OUT``). Bytecode, frames and ctypes are private
whatever they are used for.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Set
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "penstock"
PYSPARK = frozenset(
    {
        "_active_spark_context",
        "_checkpointFile",
        "_ensure_initialized",
        "_gateway",
        "_jconf",
        "_jdf",
        "_jrdd",
        "_jrdd_deserializer",
        "_jsc",
        "_jsparkSession",
        "_jvm",
        "_reserialize",
    }
)
"""What programs on PySpark reach the JVM by."""
DOCUMENTED = frozenset({"_Decompress", "_exit", "_replace", "_typeshed"})
"""Of ``os`` and of named tuples, and names of types."""
EXCEPTIONS = ("penstock/workers.py",)
"""PySpark takes a task's input that was cut off for one that ended, and says so nowhere: only the
file that its worker reads from tells the two apart."""
REBUILT = ("penstock/receivers/http/", "penstock/receivers/mqtt/")
"""What is to be written again on documented calls."""
_CODE = re.compile("_[A-Z_]+")
_LOOKS_INSIDE = frozenset({"ctypes", "dis"})
_INSIDES = frozenset({"co_code", "f_back", "f_locals", "currentframe", "_getframe"})


def main() -> int:
    """Print each use that is not excepted; return 1 if there is one."""
    modules = {path: ast.parse(path.read_text()) for path in sorted(SOURCES.rglob("*.py"))}
    own = {name for module in modules.values() for name in _defined(module)}
    found = [
        f"{path.relative_to(SOURCES.parent)}:{line}: {name}"
        for path, module in modules.items()
        for line, name in uses(module, own | PYSPARK | DOCUMENTED)
    ]
    found = [each for each in found if not each.startswith(EXCEPTIONS)]
    other = [each for each in found if not each.startswith(REBUILT)]
    for each in other:
        print(each)
    rebuilt = len(found) - len(other)
    print(f"private names of other packages: {len(other)} (in what is to be rebuilt: {rebuilt})")
    return 1 if other else 0


def uses(module: ast.Module, allowed: Set[str]) -> Iterator[tuple[int, str]]:
    """Yield the line and name of each use in a module."""
    for node in ast.walk(module):
        if isinstance(node, ast.Attribute):
            is_known = node.attr in allowed or _CODE.fullmatch(node.attr)
            is_foreign = _is_private(node.attr) and not is_known
            if node.attr in _INSIDES or is_foreign:
                yield node.lineno, node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            for name in _imported(node):
                parts = name.split(".")
                is_foreign = any(_is_private(part) and part not in allowed for part in parts)
                if parts[0] in _LOOKS_INSIDE or is_foreign:
                    yield node.lineno, name


def _imported(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    module = getattr(node, "module", None)
    for each in node.names:
        name = each.name if module is None else f"{module}.{each.name}"
        if not name.startswith("penstock."):
            yield name


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _defined(module: ast.Module) -> Iterator[str]:
    """Yield what a module defines: functions, classes, variables, attributes of its own objects."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                yield node.attr
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


if __name__ == "__main__":
    sys.exit(main())
