"""Dependences between the package's modules; the extension module depends on none of them."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import octants

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "python" / "octants"

# Imports within functions, each with its reason. Everything else is imported at the top of a module.
DEFERRED = {
    (
        "octants._program.runtime",
        "octants._code.kernel_coverage",
    ): "it needs the package `coverage`, which only this feature uses",
    ("octants._program.runtime", "octants.plain_python"): "for arch=qd.python alone",
}


def module_files():
    """The package's modules by name."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


FILES = module_files()


class Imports(ast.NodeVisitor):
    """The modules of the package that one of them imports when it runs, and those that its functions import."""

    def __init__(self, module, is_package):
        self.folder = module if is_package else module.rpartition(".")[0]
        self.depth = 0
        self.top, self.deferred = set(), set()

    def visit_FunctionDef(self, node):
        self.depth += 1
        self.generic_visit(node)
        self.depth -= 1

    visit_Lambda = visit_FunctionDef

    def visit_If(self, node):
        if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
            self.generic_visit(node)

    def visit_Import(self, node):
        for alias in node.names:
            self._add(alias.name)

    def visit_ImportFrom(self, node):
        base = node.module or ""
        if node.level:
            parts = self.folder.split(".")
            base = ".".join([*parts[: len(parts) - node.level + 1], *([base] if base else [])])
        for alias in node.names:
            name = f"{base}.{alias.name}"
            self._add(name if name in FILES or name == "octants._octants" else base)

    def _add(self, module):
        if module in FILES:
            (self.deferred if self.depth else self.top).add(module)


def imports_of(module):
    """Modules that are imported at the top, and within functions."""
    path = FILES[module]
    found = Imports(module, path.name == "__init__.py")
    found.visit(ast.parse(path.read_text()))
    return found.top, found.deferred


def enclosing_packages(module, importer):
    """The enclosing packages that Python imports before a module, if the importer is not within them."""
    parts = module.split(".")
    packages = (".".join(parts[:end]) for end in range(2, len(parts)))
    return {package for package in packages if not f"{importer}.".startswith(f"{package}.")}


def all_imports():
    """For each module all that it imports, whenever that is. All are within `octants`, which is not counted for
    that."""
    edges = {}
    for module in FILES:
        top, deferred = imports_of(module)
        imported = top | deferred
        edges[module] = imported.union(*(enclosing_packages(other, module) for other in imported))
    lazy = {f"octants.{name}" for name in octants._LAZY_MODULES} | set(octants._LAZY_NAMES.values())
    edges["octants"] |= lazy
    return edges


def cycle_in(edges):
    """The nodes of a cycle, with the first one repeated at the end; None if there is no cycle."""
    done, path = set(), []

    def search(node):
        if node in path:
            return [*path[path.index(node) :], node]
        if node in done:
            return None
        path.append(node)
        for other in sorted(edges[node]):
            found = search(other)
            if found:
                return found
        path.pop()
        done.add(node)
        return None

    return next(filter(None, map(search, sorted(edges))), None)


def test_cycles_are_found():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": set()}) is None
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]


def test_imports_are_found():
    assert "octants.types.values" in imports_of("octants._language.ops")[0]
    assert imports_of("octants._program.runtime")[1] == {"octants._code.kernel_coverage", "octants.plain_python"}


def test_packages_are_imported_before_their_modules():
    assert enclosing_packages("octants.types.primitive", "octants._fields.snode") == {"octants.types"}
    assert enclosing_packages("octants.types.primitive", "octants.types.values") == set()


def test_modules_have_no_import_cycles():
    assert cycle_in(all_imports()) is None


def test_functions_import_no_modules_of_the_package():
    deferred = {(module, other) for module in FILES for other in imports_of(module)[1]}
    assert deferred == set(DEFERRED)


def test_rust_imports_no_module_of_the_package():
    sources = sorted((ROOT / "crates" / "octants-python").rglob("*.rs"))
    assert len(sources) > 50
    assert [path for path in sources if re.search(r'\bimport\(\s*"octants\b', path.read_text())] == []


def test_a_function_shadows_its_module_of_the_same_name():
    code = "import octants as qd; before = qd.inspect; import octants.inspect; print(qd.inspect is before)"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert shown == "True\n"


def test_optional_parts_are_imported_when_they_are_used():
    code = "import sys, octants; print(*sorted(name for name in sys.modules if name.startswith('octants.')))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    lazy = {f"octants.{name}" for name in octants._LAZY_MODULES} | set(octants._LAZY_NAMES.values())
    assert "octants._fields.fields" in shown
    assert lazy & set(shown) == set()


def test_importing_the_package_loads_few_other_modules():
    # Each takes a twentieth of the import time, and few programs need it.
    slow = {"argparse", "ast", "ctypes", "html", "json", "pathlib", "tempfile"}
    code = "import sys, numpy; before = set(sys.modules); import octants; print(*sorted(set(sys.modules) - before))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert slow & set(shown) == set()


def test_only_public_names_are_listed():
    listed = [name for name in dir(octants) if not name.startswith("_")]
    assert {"Field", "OctantsRuntimeError", "cfg", "field", "math", "svd", "types"} <= set(listed)
    assert [name for name in listed if not hasattr(octants, name)] == []
    assert {"make_field", "fields", "whole_arrays"} & set(listed) == set()
