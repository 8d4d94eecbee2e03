# SPDX-License-Identifier: BSD-3-Clause
"""utofu.h and the emulator's exports against the published ABI."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ABI = json.loads(
    (Path(__file__).resolve().parent.parent / "abi" / "utofu_abi.json").read_text()
)
MASK = (1 << 64) - 1


def _facts():
    """(C expression, expected value as uint64) for everything in the file."""
    facts = []
    for name, value in ABI["defines"].items():
        facts.append(
            (
                f"(uint64_t)({name})",
                value & 0xFF if name.endswith("PATH_COORD_NULL") else value & MASK,
            )
        )
    for members in ABI["enums"].values():
        for name, value in members.items():
            facts.append((f"(uint64_t)(int64_t)({name})", value & MASK))
    for struct, layout in ABI["structs"].items():
        facts.append((f"(uint64_t)sizeof(struct {struct})", layout["size"]))
        for field in layout["fields"]:
            name = field["name"]
            facts.append(
                (f"(uint64_t)offsetof(struct {struct}, {name})", field["offset"])
            )
            facts.append(
                (f"(uint64_t)sizeof(((struct {struct} *)0)->{name})", field["size"])
            )
    for name, size in ABI["types"].items():
        facts.append((f"(uint64_t)sizeof({name})", size))
    facts.append(("(uint64_t)UTOFU_ONESIDED_FLAG_PATH(0xa5)", 0xA5 << 28))
    facts.append(("(uint64_t)UTOFU_ONESIDED_FLAG_SPS(9)", 9 << 24))
    facts.append(("(uint64_t)sizeof(UTOFU_ONESIDED_FLAG_PATH(0))", 8))
    return facts


def test_values_and_layouts(compile_c, processes):
    """Each constant, size and offset has the published value."""
    facts = _facts()
    assert len(facts) > 150
    lines = "\n".join(
        f'    printf("%llu\\n", (unsigned long long)({expression}));'
        for expression, _ in facts
    )
    program = compile_c(
        "#include <utofu.h>\n#include <stdio.h>\n"
        f"int main(void)\n{{\n{lines}\n    return 0;\n}}\n",
        name="facts",
        link=False,
    )
    code, output = processes.run([str(program)])
    assert code == 0
    values = [int(line) for line in output.split()]
    wrong = [
        f"{expression}: {value}, expected {expected}"
        for (expression, expected), value in zip(facts, values, strict=True)
        if value != expected
    ]
    assert not wrong


def test_field_types(compile_c):
    """Each structure field has the published type."""
    checks = []
    for struct, layout in ABI["structs"].items():
        for field in layout["fields"]:
            match = re.fullmatch(r"(.+?)(\[\d+\])?", field["type"])
            kind, array = match.group(1), match.group(2)
            element = f"((struct {struct} *)0)->{field['name']}" + (
                "[0]" if array else ""
            )
            checks.append(
                f"_Static_assert(_Generic({element}, {kind}: 1, default: 0), "
                f'"{struct}.{field["name"]}");'
            )
    compile_c(
        "#include <utofu.h>\n" + "\n".join(checks) + "\nint main(void){return 0;}\n",
        name="types",
        link=False,
    )


def test_every_function_is_declared_and_linkable(compile_c):
    """A program can take the address of each of the 65 functions."""
    assert len(ABI["functions"]) == 65
    table = ",\n".join(f"    (void (*)(void)){name}" for name in ABI["functions"])
    program = compile_c(
        "#include <utofu.h>\n"
        f"void (*volatile table[])(void) = {{\n{table}\n}};\n"
        "int main(void)\n{\n    unsigned i;\n"
        "    for (i = 0; i < sizeof(table) / sizeof(*table); ++i)\n"
        "        if (!table[i]) return 1;\n    return 0;\n}\n",
        "-Wno-cast-function-type",
        name="functions",
    )
    assert subprocess.run([str(program)], timeout=20).returncode == 0


def test_exports_are_exactly_the_functions(lib_dir):
    """The emulator exports the 65 functions and nothing else."""
    output = subprocess.run(
        ["nm", "-D", "--defined-only", str(lib_dir / "libtofucom.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    names = {line.split()[-1].split("@")[0] for line in output.splitlines()}
    assert names == set(ABI["functions"])


def test_soname(lib_dir):
    """A program linked against the emulator asks for "libtofucom.so"."""
    output = subprocess.run(
        ["readelf", "-d", str(lib_dir / "libtofucom.so")],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert re.search(r"SONAME.*\[libtofucom\.so\]", output)


@pytest.mark.parametrize("language", ["c", "c++"])
def test_header_compiles_alone(language, cc, include_dir, tmp_path):
    """utofu.h needs no other header before it, in C99 and in C++."""
    standard = "-std=c99" if language == "c" else "-std=c++11"
    source = tmp_path / "alone.c"
    source.write_text("#include <utofu.h>\n")
    command = [
        *cc,
        "-x",
        language,
        standard,
        "-Wall",
        "-Wextra",
        "-Werror",
        "-pedantic",
        "-fsyntax-only",
        f"-I{include_dir}",
        str(source),
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if language == "c++" and "cc1plus" in done.stderr:
        pytest.skip("no C++ compiler is installed")
    assert done.returncode == 0, done.stderr
