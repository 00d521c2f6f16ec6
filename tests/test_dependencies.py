"""What the code imports is declared in pyproject.toml, and what is declared is pinned in constraints.txt."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import transductor

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


def test_the_source_distribution_has_every_file_of_the_package():
    """What is no Python is named as data of a package, or in MANIFEST.in."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    named = [f"{package.replace('.', '/')}/{pattern}" for package, patterns in data.items() for pattern in patterns]
    lines = (ROOT / "MANIFEST.in").read_text().splitlines()
    anywhere = [pattern for line in lines if line.startswith("recursive-include src ") for pattern in line.split()[2:]]
    files = [path.relative_to(ROOT / "src") for path in (ROOT / "src" / "transductor").rglob("*") if path.is_file()]
    others = [path for path in files if path.suffix != ".py" and path.parent.name != "__pycache__"]
    assert len(others) > 10
    for path in others:
        assert any(fnmatch(path.as_posix(), each) for each in named) or any(map(path.match, anywhere)), path


def test_everything_says_the_same_version():
    version = PROJECT["version"]
    cited = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited[1] == newest[1] == transductor.__version__ == version
