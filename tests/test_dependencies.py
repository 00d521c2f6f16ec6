"""What the code imports is declared in pyproject.toml, and what is declared is pinned in constraints.txt."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

# Packages whose modules have another name, and modules that come with a package of another name.
MODULES = {
    "pillow": "PIL",
    "python-flint": "flint",
    "import-linter": "importlinter",
    "onnx-ir": "onnx_ir",
    "scikit-learn": "sklearn",
}
BROUGHT_ALONG = {"pywrapfst": "pynini"}


def requirement_name(line: str) -> str:
    return re.match(r"[A-Za-z0-9-]+", line)[0].lower()


def declared() -> set[str]:
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    return {requirement_name(line) for line in lines} - {"transductor"}


def imported_modules(folder: str) -> dict[str, Path]:
    modules = {}
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            modules |= {name.split(".")[0]: path for name in names}
    return {name: path for name, path in modules.items() if name not in sys.stdlib_module_names}


def test_every_import_is_declared():
    available = {MODULES.get(name, name.replace("-", "_")) for name in declared()}
    # Scripts of one folder import one another by name.
    scripts = [path.stem for folder in ("benchmarks", "docs") for path in (ROOT / folder).glob("*.py")]
    ours = {"transductor", "tests", *scripts}
    for folder in ("src", "tests", "benchmarks", "examples", "docs"):
        for module, path in imported_modules(folder).items():
            assert module in available | ours | set(BROUGHT_ALONG), f"{path} imports {module}, which is not declared"


def test_every_direct_dependency_is_pinned():
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {requirement_name(line) for line in lines if line and not line.startswith("#")}
    assert declared() | {"setuptools"} == pinned
    assert all("==" in line for line in lines if line and not line.startswith("#"))
