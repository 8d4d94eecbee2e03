# SPDX-License-Identifier: BSD-3-Clause
"""The stubs say what the extension has; the examples of the page run."""

import ast
import inspect
import re
from pathlib import Path

import pytest

import ucp_glue
from ucp_glue import _ucp

TOP = Path(__file__).resolve().parents[2]
INTERNAL = {"AmSource", "EpHandle"}


def _stub():
    tree = ast.parse((TOP / "ucp_glue" / "_ucp.pyi").read_text())
    return {node.name: node for node in tree.body if isinstance(node, ast.ClassDef)}


def _arguments(function):
    arguments = function.args
    return (
        [a.arg for a in arguments.posonlyargs + arguments.args],
        [a.arg for a in arguments.kwonlyargs],
        len(arguments.defaults) + sum(d is not None for d in arguments.kw_defaults),
    )


def _real(item):
    parameters = inspect.signature(item).parameters.values()
    return (
        [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY,
                                                  p.POSITIONAL_OR_KEYWORD)],
        [p.name for p in parameters if p.kind == p.KEYWORD_ONLY],
        sum(p.default is not p.empty for p in parameters),
    )


def test_stubs_match():
    stubs = _stub()
    classes = {
        name: item
        for name, item in vars(_ucp).items()
        if inspect.isclass(item) and item.__module__ == "ucp_glue._ucp"
    }
    assert set(stubs) == set(classes) - INTERNAL
    checked = 0
    for name, stub in stubs.items():
        public = {member for member in vars(classes[name]) if member[0] != "_"}
        declared = {
            node.name if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            else node.target.id
            for node in stub.body
        }
        assert {d for d in declared if d[0] != "_"} == public, name
        for node in stub.body:
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            item = vars(classes[name]).get(node.name)
            if node.name.startswith("__") or inspect.isgetsetdescriptor(item):
                continue
            assert _arguments(node) == _real(item), f"{name}.{node.name}"
            checked += 1
    assert checked > 45


def test_package_stub_matches():
    text = (TOP / "ucp_glue" / "__init__.pyi").read_text()
    names = {a for a, b in re.findall(r"(\w+) as (\w+)", text) if a == b}
    assert names == set(ucp_glue.__all__)


PAGE = (TOP / "docs" / "ucp_glue.md").read_text()
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("number", range(len(EXAMPLES)))
def test_examples_of_the_page(script, number):
    tls = "utofu,tcp" if "listen(" in EXAMPLES[number] else "utofu"
    script(EXAMPLES[number], tls)


def test_the_page_has_examples():
    assert len(EXAMPLES) >= 5
