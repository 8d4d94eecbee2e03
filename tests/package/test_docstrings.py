# SPDX-License-Identifier: BSD-3-Clause
"""Every public object says what it does and where its rules come from."""

import importlib
import inspect

import pytest

import ucp_glue
import uct_tofu

MODULES = (
    "uct_tofu",
    "uct_tofu._utofu",
    "uct_tofu._core",
    "uct_tofu._loop",
    "uct_tofu._paths",
    "uct_tofu._exchange",
    "uct_tofu._forward",
    "uct_tofu._kv_server",
    "uct_tofu._kv_wire",
    "uct_tofu._placement",
    "uct_tofu.errors",
    "uct_tofu.launcher",
    "uct_tofu.perf.compare",
    "uct_tofu.perf.measure",
    "uct_tofu.perf.paper",
    "uct_tofu.perf.plots",
    "uct_tofu.perf.predict",
    "uct_tofu.perf.published",
    "uct_tofu.perf.report",
    "uct_tofu.perf.result",
    "uct_tofu.perf.series",
    "uct_tofu.perf.units",
    "uct_tofu.perf.cli_run",
    "uct_tofu.perf.kernels",
    "uct_tofu.perf.mpi_kernel",
    "uct_tofu.perf.runner",
    "uct_tofu.perftest",
    "uct_tofu.world",
    "uct_tofu.perf.scale",
    "uct_tofu.perf.scale.claims",
    "uct_tofu.perf.scale.memory",
    "uct_tofu.perf.scale.network",
    "uct_tofu.perf.scale.nodes",
    "uct_tofu.perf.scale.plots",
    "uct_tofu.perf.scale.report",
    "ucp_glue",
    "ucp_glue.plugin",
    "ucp_glue.ucxpy",
    "ucp_glue.ucxx",
    "ucp_glue.errors",
    "ucp_glue._driver",
    "ucp_glue._inbox",
    "ucp_glue._load",
    "ucp_glue._ucp",
)


def _public():
    """(name, object) for all classes, functions, methods and properties."""
    seen = set()
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        for name, item in sorted(vars(module).items()):
            if name.startswith("_") or inspect.ismodule(item):
                continue
            home = getattr(item, "__module__", None)
            if home is None or not home.startswith(("uct_tofu", "ucp_glue")):
                continue
            if not callable(item) or id(item) in seen:
                continue
            seen.add(id(item))
            yield f"{home}.{name}", item
            if inspect.isclass(item):
                for member, value in sorted(vars(item).items()):
                    if member.startswith("_"):
                        continue
                    if isinstance(value, (staticmethod, classmethod)):
                        value = value.__func__
                    if (
                        isinstance(value, property)
                        or inspect.isroutine(value)
                        or inspect.isgetsetdescriptor(value)
                    ):
                        yield f"{home}.{name}.{member}", value


PUBLIC = dict(_public())


def test_the_list_is_not_empty():
    assert len(PUBLIC) > 80
    for name in (
        "uct_tofu._core.Endpoint.put_zcopy",
        "uct_tofu._utofu.Vcq.put",
        "ucp_glue.plugin.enable",
        "ucp_glue._ucp.Endpoint.tag_send",
    ):
        assert name in PUBLIC, sorted(PUBLIC)


@pytest.mark.parametrize("module", MODULES)
def test_modules_are_documented(module):
    assert len(importlib.import_module(module).__doc__ or "") > 40


def test_public_objects_are_documented():
    """A docstring with a Source line; plain attributes need none."""
    bad = []
    for name, item in PUBLIC.items():
        if inspect.isgetsetdescriptor(item) and not item.__doc__:
            continue  # "cdef readonly" attribute: the class describes it
        text = inspect.getdoc(item) or ""
        if len(text) < 20 or "Source:" not in text:
            bad.append(name)
    assert not bad


def test_attributes_have_help():
    """Those too that are fields."""
    names = [n for n, item in PUBLIC.items() if inspect.isgetsetdescriptor(item)]
    assert len(names) > 40
    assert not [name for name in names if not PUBLIC[name].__doc__]


def test_all_names_exist():
    for module in (uct_tofu, ucp_glue):
        for name in module.__all__:
            assert getattr(module, name) is not None
    with pytest.raises(AttributeError):
        uct_tofu.nonsense


# Others make these: use Backend.load(), md.alloc(), ...
MADE_BY_OTHERS = {"Backend", "Memory", "RegisteredMemory", "Request", "AmMessage"}


@pytest.mark.parametrize("package", [uct_tofu, ucp_glue], ids=lambda p: p.__name__)
def test_help_of_classes_tells_how_to_make_them(package):
    """With the defaults; the stubs say the same."""
    for name in package.__all__:
        cls = getattr(package, name)
        if (
            inspect.isclass(cls)
            and not issubclass(cls, BaseException)
            and name not in MADE_BY_OTHERS
        ):
            assert inspect.signature(cls) is not None, name
