# SPDX-License-Identifier: BSD-3-Clause
"""uTofu programs with MPI, built as their users build them, on the emulator."""

import os
import re
import shutil
import subprocess

import pytest

PROGRAMS = {
    "put_pingpong": 2,
    "get_progress": 2,
    "armw_race": 4,
    "stride_halo": 3,
    "barrier_reduce": 8,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name, mpicc, mpiexec):
    """Each of the five scenarios runs to its end and checks what it got."""
    output = mpiexec(PROGRAMS[name], mpicc(name))
    assert f"{name} ok" in output


def test_flags_of_pkg_config(mpicc, mpiexec, lib_dir):
    """pkg-config's flags build the same program."""
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config is installed")
    done = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "utofu"],
        capture_output=True,
        text=True,
        env={**os.environ, "PKG_CONFIG_PATH": str(lib_dir / "pkgconfig")},
        timeout=20,
    )
    assert done.returncode == 0, done.stderr
    program = mpicc("put_pingpong", flags=done.stdout.split())
    # pkg-config names no run path: the linker finds the library by this
    path = os.pathsep.join(
        filter(None, (str(lib_dir), os.environ.get("LD_LIBRARY_PATH")))
    )
    assert "put_pingpong ok" in mpiexec(2, program, LD_LIBRARY_PATH=path)


def test_uneven_race(mpicc, mpiexec):
    """The smallest race, and one with every rank on one node."""
    program = mpicc("armw_race")
    assert "the number is 4001" in mpiexec(2, program)
    assert "the number is 4002" in mpiexec(3, program, UTOFU_EMU_PPN="3")


CQS = r"""
#include <utofu.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    unsigned long flags = atoi(argv[argc - 1]) ? UTOFU_VCQ_FLAG_EXCLUSIVE : 0;
    for (utofu_tni_id_t at, tni = 0; tni < 6; tni++) {
        int last = -1;
        utofu_vcq_hdl_t vcq;
        while (utofu_create_vcq(tni, flags, &vcq) == UTOFU_SUCCESS) {
            utofu_vcq_id_t id;
            utofu_cq_id_t  cq;
            uint16_t       extra;
            uint8_t        c[6];
            if (utofu_query_vcq_id(vcq, &id) || utofu_query_vcq_info(id, c, &at, &cq, &extra)) return 1;
            if (cq != last) printf("%u ", cq);
            last = cq;
        }
        printf("\n");
    }
    return 0;
}
"""


def _places(output):
    """{rank: (coordinates, CQ)}"""
    lines = re.findall(r"rank (\d+) coords ([\d,]+) cq (\d+)", output)
    return {int(rank): (coords, int(cq)) for rank, coords, cq in lines}


def test_each_rank_has_its_node(mpicc, mpiexec):
    """Rank n of an MPI job is on node n."""
    places = _places(mpiexec(4, mpicc("placement")))
    assert places == {
        0: ("0,0,0,0,0,0", 0),
        1: ("0,0,0,0,0,1", 0),
        2: ("0,0,0,0,1,0", 0),
        3: ("0,0,0,0,1,1", 0),
    }


def test_two_ranks_of_a_node_share_its_cqs(mpicc, mpiexec):
    """With UTOFU_EMU_PPN=2 the CQs of a TNI are divided between two ranks, and each
    has the first one that it has on Fugaku, whoever comes first."""
    places = _places(mpiexec(4, mpicc("placement"), UTOFU_EMU_PPN="2"))
    assert [places[rank][0] for rank in range(4)] == [
        "0,0,0,0,0,0",
        "0,0,0,0,0,0",
        "0,0,0,0,0,1",
        "0,0,0,0,0,1",
    ]
    assert [places[rank][1] for rank in range(4)] == [0, 6, 0, 6]


@pytest.mark.parametrize("variable", ["PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"])
def test_ranks_of_launchers(variable, compile_c, processes, job):
    """Each launcher's variable puts a process on the node of its rank."""
    program = compile_c(
        "#include <utofu.h>\n#include <stdio.h>\nint main(void)\n{\n"
        "    uint8_t c[6];\n    if (utofu_query_my_coords(c)) return 1;\n"
        '    printf("%u %u %u %u %u %u\\n", c[0], c[1], c[2], c[3], c[4], c[5]);\n'
        "    return 0;\n}\n",
        name="coords",
    )
    other = ("PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "UTOFU_EMU_NODE")
    env = {k: v for k, v in os.environ.items() if k not in other}
    found = [
        processes.run([str(program)], env={**env, variable: str(rank), **more})
        for rank, more in ((0, {}), (13, {}), (27, {"UTOFU_EMU_PPN": "2"}))
    ]
    assert found == [(0, f"{text}\n") for text in
                     ("0 0 0 0 0 0", "1 0 0 0 0 1", "1 0 0 0 0 1")]


def _cqs(processes, program, rank, ppn, kind="0"):
    """CQs in the order in which a process gets them, by TNI."""
    other = ("PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "UTOFU_EMU_NODE")
    env = {k: v for k, v in os.environ.items() if k not in other}
    env |= {"PMIX_RANK": str(rank), "UTOFU_EMU_PPN": str(ppn)}
    status, output = processes.run([str(program), kind], env=env)
    assert status == 0, output
    return [[int(cq) for cq in line.split()] for line in output.splitlines()]


def test_first_cq_of_a_rank(compile_c, processes, job):
    """The first CQ that a rank shares depends on its place on the node only: each of
    these processes is alone there.  utf's table has the numbers for Fugaku."""
    program = compile_c(CQS, name="cqs")
    for ppn, cqs in {1: [0], 2: [0, 6], 3: [0, 4, 8], 4: [0, 2, 5, 8]}.items():
        for rank, cq in enumerate(cqs):
            found = _cqs(processes, program, 7 * ppn + rank, ppn)
            assert [tni[0] for tni in found] == [cq] * 6
    for ppn, share in {7: 2, 8: 2, 11: 3, 12: 3, 19: 6, 24: 6}.items():
        for rank in (0, 1, ppn // 2, ppn - 1):
            tni = rank % share * (6 // share)
            cq = [0, 2, 5, 8][rank // share]
            assert _cqs(processes, program, rank, ppn)[tni][0] == cq
    assert _cqs(processes, program, 47, 48)[0][0] == 0  # as it comes


@pytest.mark.parametrize("kind, order", [
    ("0", [5, 1, 3, 4, 6, 7, 0, 2, 8]),
    ("1", [7, 6, 4, 3, 1, 8, 5, 2, 0]),
])  # fmt: skip
def test_cqs_of_others_are_taken_last(kind, order, compile_c, processes, job):
    """A process that wants more CQs gets all that there are, those on which others of
    the node have their first VCQ last."""
    found = _cqs(processes, compile_c(CQS, name="cqs"), 2, 4, kind)
    assert found == [order] * 6


@pytest.mark.parametrize("language", ["c", "c++"])
def test_mpi_ext(language, mpicc, mpiexec, uct_tofu_flags):
    """mpi-ext.h agrees with uTofu, for a line of nodes and for a block."""
    if language == "c++" and shutil.which("g++") is None:
        pytest.skip("no g++ is installed")
    program = mpicc("topology", language, uct_tofu_flags("--mpi-ext"))

    def logical(count, **environment):
        output = mpiexec(count, program, **environment)
        found = re.findall(r"rank (\d+) logical (\S+)", output)
        return [text for _, text in sorted((int(r), text) for r, text in found)], output

    assert logical(3)[0] == ["0,-1,-1", "1,-1,-1", "2,-1,-1"]
    assert logical(4, UTOFU_EMU_PPN="2")[0] == ["0,-1,-1", "0,-1,-1", "1,-1,-1", "1,-1,-1"]
    assert logical(4, UTOFU_EMU_NODE_SHAPE="2,1,2")[0] == [
        "0,0,0",
        "1,0,0",
        "0,0,1",
        "1,0,1",
    ]
    for wrong in ("1,2", "2,x", "2,2,2,2", "0", "-4"):
        line, output = logical(3, UTOFU_EMU_NODE_SHAPE=wrong)
        assert line == ["0,-1,-1", "1,-1,-1", "2,-1,-1"]
        assert "is not a shape" in output


@pytest.mark.parametrize("language", ["c", "c++"])
def test_mpi_ext_beside_a_definition_of_mpi_init(language, mpicc, mpiexec, uct_tofu_flags):
    """mpi-ext.h lets a program define MPI_Init, and needs no help of other ranks then."""
    if language == "c++" and shutil.which("g++") is None:
        pytest.skip("no g++ is installed")
    program = mpicc("own_init", language, uct_tofu_flags("--mpi-ext"))
    output = mpiexec(4, program, UTOFU_EMU_PPN="2", UTOFU_EMU_SHAPE="1,1,2")
    assert re.findall(r"rank (\d) is on node (\d) at (\S+)", output) == [
        ("0", "0", "0,0,0,0,0,0"),
        ("1", "0", "0,0,0,0,0,0"),
        ("2", "1", "0,0,0,0,0,1"),
        ("3", "1", "0,0,0,0,0,1"),
    ]


@pytest.mark.parametrize("language", ["c", "c++"])
def test_mpi_ext_beside_that_of_the_mpi(language, mpicc, uct_tofu_flags, tmp_path):
    """The MPI's header of that name is there, too, and no pedant is told of how."""
    if language == "c++" and shutil.which("g++") is None:
        pytest.skip("no g++ is installed")
    (tmp_path / "mpi-ext.h").write_text("#define OF_THE_MPI 1\n")
    flags = [f"-I{tmp_path}", "-pedantic"]
    mpicc("own_ext", language, [*uct_tofu_flags("--mpi-ext"), *flags])


def test_mpi_ext_by_pkg_config(mpicc, mpiexec, lib_dir):
    """pkg-config knows the header's folder by a name of its own."""
    if shutil.which("pkg-config") is None:
        pytest.skip("no pkg-config is installed")
    words = subprocess.run(
        ["pkg-config", "--cflags", "--libs", "utofu-mpi-ext"],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PKG_CONFIG_PATH": str(lib_dir / "pkgconfig")},
        timeout=20,
    ).stdout.split()
    program = mpicc("topology", flags=[*words, f"-Wl,-rpath,{lib_dir}"])
    assert "rank 1 logical 1,-1,-1" in mpiexec(2, program)
