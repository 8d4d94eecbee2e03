# SPDX-License-Identifier: BSD-3-Clause
"""What docs/emulator.md promises beyond the uTofu guide.

The C tests use the harness of the conformance suite; here they are listed,
run one by one in a job of their own, and their verdict is read.
"""

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import uct_tofu

HERE = Path(__file__).parent
TEST = re.compile(r"CONF_TEST\(\"\w+\", (\w+),")
NAMES = sorted(
    name for source in (HERE / "c").glob("*.c") for name in TEST.findall(source.read_text())
)
REHOME = sorted(
    name
    for source in (*(HERE / "c").glob("emu_rehome*.c"), HERE / "c" / "emu_stop.c")
    for name in TEST.findall(source.read_text())
)

# a process that is killed or aborts on purpose leaks by nature
SANITIZERS = {
    "ASAN_OPTIONS": "detect_leaks=0",
    "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
}


def environment(job, **extra):
    env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
    env["UTOFU_EMU_JOB"] = f"{job}-{os.getpid()}"
    env.update(extra)
    return env


def run(program, name, **extra):
    done = subprocess.run(
        [program, name],
        cwd=program.parent,  # where its files go
        env=environment(name, **extra),
        capture_output=True,
        text=True,
        timeout=150,
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip() or done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_list_is_complete():
    assert len(NAMES) >= 13
    assert len(NAMES) == len(set(NAMES)), "of two tests of one name one runs, twice"


@pytest.mark.parametrize("name", NAMES)
def test_emulator(emu_tests, name):
    run(emu_tests, name)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in REHOME])
def test_emulator_by_the_kernel(emu_tests, name):
    """The same with private memory left where it is."""
    run(emu_tests, name, UTOFU_EMU_REHOME="0")


@pytest.mark.parametrize("name", REHOME)
@pytest.mark.parametrize("without", ["userfaultfd", "userfaultfd,ptrace"])
def test_emulator_of_an_ordinary_user(emu_tests, name, without):
    """Nobody gave it userfaultfd: beside threads these are stopped, or nothing is moved."""
    run(emu_tests, name, EMU_TEST_WITHOUT=without)


@pytest.mark.parametrize("without", ["userfaultfd", "userfaultfd,ptrace"])
def test_first_thread_of_an_ordinary_user(emu_tests, without):
    run(emu_tests, "first_thread_ends", EMU_TEST_WITHOUT=without)


HIDDEN = """
import os, sys
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)  # nobody may look into it from here on
child = os.fork()
if child == 0:
    print("there", flush=True)
    sys.stdin.read()
    os._exit(0)
os.waitpid(child, 0)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_hidden_process_that_was_there_before(emu_tests):
    """As an agent, or what a login leaves: of the same user, and not to be seen."""
    command = [sys.executable, "-c", HIDDEN]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as hidden:
        try:
            assert hidden.stdout.readline() == "there\n"
            time.sleep(0.05)  # the kernel tells beginnings apart by 10 ms
            run(emu_tests, "shared_of_an_ordinary_user")
        finally:
            hidden.stdin.close()
            hidden.wait(30)


@pytest.mark.parametrize("seed", [2, 3, 5, 8])
def test_heap_in_use(emu_tests, seed):
    run(emu_tests, "heap_in_use", EMU_SEED=str(seed))


def test_file_size_at_later_registration(emu_tests):
    """The file is there already, and can't be written."""
    run(emu_tests, "file_size_at_registration", EMU_LIMIT_LATE="1")


def test_a_wrong_variable_is_said(emu_tests):
    done = subprocess.run(
        [emu_tests, "lines_wrong_variable"],
        env=environment("lines"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 'UTOFU_EMU_LINES="sideways" is neither ordered nor unordered' in done.stderr


def test_a_wrong_word_for_rehome_is_said(emu_tests):
    done = subprocess.run(
        [emu_tests, "lines_wrong_variable"],
        env=environment("rehome", UTOFU_EMU_REHOME="sometimes"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert 'UTOFU_EMU_REHOME="sometimes" is neither auto nor 0' in done.stderr


@pytest.mark.parametrize(
    "variable, value, said",
    [
        ("STRICT", "strict", "is neither 0 nor 1; 1 is used"),
        ("STRICT", "2", "is neither 0 nor 1; 1 is used"),
        ("STRICT", "off", None),
        ("STRICT", "on", None),
        ("NODE", "-2", "is not a number from 0 on; ignored"),
        ("NODE", "5x", "is not a number from 0 on; ignored"),
        ("PPN", "4x", "is not a number from 1 on; ignored"),
        ("PPN", "0", "is not a number from 1 on; ignored"),
        ("PPN", "2", None),
        ("PPN", "65535", None),
        ("PPN", "65536", "is more than 65535; ignored"),
        ("PPN", "99999999999", "is more than 65535; ignored"),
        ("NODE", "99999999999999999999999", "is not a number from 0 on; ignored"),
        ("SEED", "99999999999999999999999", "is not a number of up to 64 bits; 1 is used"),
        ("SEED", "18446744073709551616", "is not a number of up to 64 bits; 1 is used"),
        ("SEED", "18446744073709551615", None),
        ("SEED", "x", "is not a number of up to 64 bits; 1 is used"),
        ("COORDS", "", None),
        ("SHAPE", "", None),
        ("TIMING", "no", None),
        ("FAULT", "nop:delay=5", "is not a rule; ignored"),
        ("FAULT", ";".join(["put:after=9:busy"] * 33), "is rule 33, and there may be 32; ignored"),
    ],
)
def test_a_wrong_value_is_said(emu_tests, variable, value, said):
    done = subprocess.run(
        [emu_tests, "stats_of_none"],
        env=environment("wrong", **{f"UTOFU_EMU_{variable}": value}),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0
    if said is None:
        assert "utofu:" not in done.stderr
    else:
        assert said in done.stderr


def said_with(emu_tests, job, **variables):
    """What the library says when a process joins with these variables."""
    done = subprocess.run(
        [emu_tests, "stats_of_none"],
        env=environment(job, **variables),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stderr


@pytest.mark.parametrize(
    "rule, why",
    [
        ("putt:busy", '"putt" is neither an operation nor a call, nor a queue'),
        ("put", "it does nothing: error=, busy, dead or a delay= of 1 or more is missing"),
        ("put:delay=0", "it does nothing: error=, busy, dead or a delay= of 1 or more is missing"),
        ("vcq:count=1", "it does nothing: error= is missing"),
        ("put:error=FULL", "error=FULL is for reg and vcq only"),
        ("vcq:error=MRQ_PEER", "error=MRQ_PEER is for operations only"),
        ("put:error=UTOFU_ERR_MRQ_PEER", "codes are written without UTOFU_ERR_"),
        ("put:error=NONSENSE", '"NONSENSE" is not an error code for rules'),
        ("put:delay=1.5", 'delay= takes a whole number, not "1.5"'),
        ("put:after=-1:busy", 'after= takes a whole number, not "-1"'),
        ("put:after=4294967296:busy", "after=4294967296 is out of range (0 to 4294967295)"),
        ("put:every=0:busy", "every=0 is out of range (1 to 4294967295)"),
        ("put:count=0:busy", "count=0 is out of range (1 to 4294967295)"),
        ("toq=2049", "toq=2049 is out of range (1 to 2048)"),
        ("mrq=0", "mrq=0 is out of range (1 to "),
        ("toq=5:busy", "nothing may follow toq=5"),
        ("reg:peer=0,0,0,0,0,0:error=FULL", "peer is for operations only"),
        ("reg:busy", "busy is for operations only"),
        ("put:peer=1,2:busy", 'peer= takes 6 numbers, X,Y,Z,A,B,C, not "1,2"'),
        ("put:peer=0,0,0,0,3,0:busy", "A, B, C are up to 1, 2, 1"),
        ("put:busy ", '"busy " is neither a condition nor an action'),
        ("put:error", "error needs a value, as in error=..."),
        ("put:busy=1", "busy takes no value"),
        ("put:error=MRQ_PEER:error=MRQ_OTHER", "error is there twice"),
        ("put:busy:error=MRQ_PEER", "busy goes with no other action"),
        ("nop:dead", "a NOP goes to nobody"),
        ("put:prob=0,5:busy", 'prob= takes a number such as 0.5, not "0,5"'),
        ("put:prob=2:busy", "prob=2 is out of range (0 to 1)"),
        (":", "there is nothing in it"),
    ],
)
def test_why_a_rule_is_none(emu_tests, rule, why):
    said = said_with(emu_tests, "rule", UTOFU_EMU_FAULT=rule)
    assert f'UTOFU_EMU_FAULT: "{rule}" is not a rule; ignored: ' in said
    assert why in said
    assert said.count("utofu:") == 1


@pytest.mark.parametrize(
    "variables, said",
    [
        ({"PMIX_RANK": "x"}, ['PMIX_RANK="x" is no rank; ignored']),
        ({"PMI_RANK": "-3"}, ['PMI_RANK="-3" is no rank; ignored']),
        ({"PMIX_RANK": "x", "PMI_RANK": "-3", "OMPI_COMM_WORLD_RANK": "0"},
         ['PMIX_RANK="x" is no rank', 'PMI_RANK="-3" is no rank']),
        ({"PMIX_RANK": "", "PMI_RANK": "1"}, []),
        ({"PMIX_RANK": "x", "UTOFU_EMU_NODE": "3"}, []),
        ({"UTOFU_EMU_COORDS": "0,0,0,0,0,1", "UTOFU_EMU_NODE": "5x", "UTOFU_EMU_PPN": "y"},
         ['UTOFU_EMU_NODE="5x" is not', 'UTOFU_EMU_PPN="y" is not']),
        ({"UTOFU_EMU_SHAPE": "1,1,1", "UTOFU_EMU_COORDS": "1,0,0,0,0,0"},
         ['"1,0,0,0,0,0" is not a list of 6 numbers in range (0,0,0,0,0,0 to 0,0,0,1,2,1); ignored']),
        ({"UTOFU_EMU_SHAPE": "256,1,1"}, ["is not a list of 3 numbers in range (1 to 255); ignored"]),
    ],
)  # fmt: skip
def test_what_is_said_of_places(emu_tests, variables, said):
    """Once of each variable, and of no other."""
    error = said_with(emu_tests, "places", **variables)
    assert all(part in error for part in said), error
    assert error.count("utofu:") == len(said)


@pytest.mark.parametrize(
    "variables, come_from",
    [
        ({"UTOFU_EMU_NODE": "12"}, "node 12 (UTOFU_EMU_NODE)"),
        ({"PMI_RANK": "25", "UTOFU_EMU_PPN": "2"}, "node 12 (PMI_RANK is 25, with 2 on each node)"),
        ({"PMIX_RANK": "12"}, "node 12 (PMIX_RANK is 12, with 1 on each node)"),
    ],
)
def test_a_node_outside_and_where_it_comes_from(emu_tests, variables, come_from):
    done = subprocess.run(
        [emu_tests, "stats_of_none"],
        env=environment("outside", UTOFU_EMU_SHAPE="1,1,1", **variables),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode != 0
    assert f"{come_from} is outside the network of 1 x 1 x 1 units (UTOFU_EMU_SHAPE)" in done.stderr
    assert "which has the nodes 0 to 11" in done.stderr


INVALID_COORDS = -515
IN_A_ROW = """
import ctypes, os, sys
lib, coords, stay = ctypes.CDLL(sys.argv[1]), (ctypes.c_uint8 * 6)(), os.pipe()
for place in sys.argv[2:]:
    told = os.pipe()
    if os.fork() == 0:
        os.close(stay[1])
        os.environ["UTOFU_EMU_COORDS"] = place
        code = lib.utofu_query_my_coords(coords)
        print(code, *coords, flush=True)
        os.close(told[1])
        os.read(stay[0], 1)
        os._exit(0)
    os.close(told[1])
    os.read(told[0], 1)
"""


def in_a_row(job, *places, **variables):
    """Processes of one job, one after the other: their coordinates, and what is said."""
    done = subprocess.run(
        [sys.executable, "-c", IN_A_ROW, Path(uct_tofu.lib_dir()) / "libtofucom.so", *places],
        env=environment(job, **variables),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return [tuple(map(int, line.split())) for line in done.stdout.splitlines()], done.stderr


def test_a_slot_outside_and_where_it_comes_from():
    coords, said = in_a_row("slots", *[""] * 13, UTOFU_EMU_SHAPE="1,1,1")
    assert [code for code, *_ in coords] == [0] * 12 + [INVALID_COORDS]
    assert "node 12 (slot 12 of the job, with 1 on each node) is outside" in said


def test_without_a_rank_the_slot_names_the_node():
    """Whoever else is on that node."""
    coords, said = in_a_row("slot", "0,0,0,0,0,1", "", "")
    assert coords == [(0, 0, 0, 0, 0, 0, 1), (0, 0, 0, 0, 0, 0, 1), (0, 0, 0, 0, 0, 1, 0)]
    assert said == ""


PID_NAMESPACE = ["unshare", "--pid", "--fork", "--mount-proc"]
USER_NAMESPACE = ["unshare", "--user", "--map-current-user"]


@pytest.mark.parametrize(
    "first, second, said",
    [
        ([], ["unshare", "--pid", "--fork"], "/proc is that of another PID namespace"),
        ([], PID_NAMESPACE, "is one of another PID namespace"),
        (PID_NAMESPACE, [], "is one of another PID namespace"),
        (PID_NAMESPACE, PID_NAMESPACE, "is one of another PID namespace"),
        ([], ["unshare", "--time", "--boottime", "100000"], "is one of another time namespace"),
        ([], USER_NAMESPACE, "is one of another user namespace"),
        (USER_NAMESPACE, [], "is one of another user namespace"),
        (USER_NAMESPACE, USER_NAMESPACE, "is one of another user namespace"),
    ],
)
def test_another_namespace(emu_tests, first, second, said):
    """Processes there can't be told from such as have ended: the job is refused, not taken apart."""
    env = environment("namespace")
    if any(subprocess.run([*way, "true"], capture_output=True).returncode for way in (first, second) if way):
        pytest.skip("no such namespaces here")
    with subprocess.Popen(
        [*first, sys.executable, "-c", HOLDER, Path(uct_tofu.lib_dir()) / "libtofucom.so"],
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdout.readline()
        done = subprocess.run(
            [*second, emu_tests, "stats_of_none"],
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode != 0 and said in done.stderr
        holder.stdin.close()
        assert holder.wait(30) == 0


TWO_COPIES = """
import ctypes, mmap, os, sys
memory = mmap.mmap(-1, 65536, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
address = ctypes.c_void_p(ctypes.addressof(ctypes.c_char.from_buffer(memory)))
num, word, null = ctypes.c_ulong, ctypes.c_uint64, ctypes.c_void_p()
lib = [ctypes.CDLL(path) for path in sys.argv[1:]]
vcq, stadd, vcq_id = [word(), word()], [word(), word()], word()
for i in range(2):
    assert lib[i].utofu_create_vcq(ctypes.c_uint16(0), num(0), ctypes.byref(vcq[i])) == 0
    assert lib[i].utofu_reg_mem(vcq[i], address, num(65536), num(0), ctypes.byref(stadd[i])) == 0
assert lib[1].utofu_query_vcq_id(vcq[1], ctypes.byref(vcq_id)) == 0
memory[0] = 5
assert lib[0].utofu_put(vcq[0], vcq_id, stadd[0], word(stadd[1].value + 4096), num(8), word(0), num(0), null) == 0
assert memory[4096] == 5
child = os.fork()
if child == 0:
    os._exit(memory[0] if memory[4096] == 5 else 1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 5
"""


def test_fork_with_two_copies_of_the_library(tmp_path):
    """One of them is the other's peer, and maps all of the memory that it has moved."""
    library = Path(uct_tofu.lib_dir()) / "libtofucom.so"
    copy = shutil.copy(library, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", TWO_COPIES, library, copy],
        env=environment("copies"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


HOLDER = """
import ctypes, sys
vcq = ctypes.c_size_t()
create = ctypes.CDLL(sys.argv[1]).utofu_create_vcq
assert create(ctypes.c_uint16(0), ctypes.c_ulong(0), ctypes.byref(vcq)) == 0
print(flush=True)
sys.stdin.read()
"""


REGISTERS_TWICE = """
import ctypes, sys
lib, vcq, stadd = ctypes.CDLL(sys.argv[1]), ctypes.c_size_t(), ctypes.c_uint64()
block = ctypes.create_string_buffer(65536)
assert lib.utofu_create_vcq(ctypes.c_uint16(0), ctypes.c_ulong(0), ctypes.byref(vcq)) == 0
for turn in range(2):
    print(lib.utofu_reg_mem(vcq, block, ctypes.c_size_t(65536), ctypes.c_ulong(0), ctypes.byref(stadd)))
"""


def test_without_proc_the_reason_is_said(emu_tests):
    """Nobody can say what is mapped: each registration fails, and one tells why."""
    without = ["unshare", "--mount", "sh", "-c", 'umount -l /proc && exec "$@"', "sh"]
    if subprocess.run([*without, "true"], capture_output=True).returncode:
        pytest.skip("/proc can't be unmounted here")
    done = subprocess.run(
        [*without, sys.executable, "-c", REGISTERS_TWICE, Path(uct_tofu.lib_dir()) / "libtofucom.so"],
        env=environment("no-proc"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["-640", "-640"], done.stdout + done.stderr
    assert done.stderr.count("utofu: no memory can be registered: /proc/self/maps") == 1
    assert "there is no /proc" in done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_emulator_sanitized(sanitized, name):
    """No report of AddressSanitizer or UBSan, in library or test."""
    run(sanitized / "emu_tests", name, **SANITIZERS)


@pytest.mark.parametrize("name", REHOME)
def test_an_ordinary_user_sanitized(sanitized, name):
    run(sanitized / "emu_tests", name, **SANITIZERS, EMU_TEST_WITHOUT="userfaultfd")


UNLOADED = """
import _ctypes, ctypes, mmap, os, sys
for turn in range(2):
    lib = ctypes.CDLL(sys.argv[1])
    vcq, stadd, block = ctypes.c_size_t(), ctypes.c_uint64(), mmap.mmap(-1, 65536, mmap.MAP_PRIVATE)
    at = ctypes.addressof(ctypes.c_char.from_buffer(block))
    assert lib.utofu_create_vcq(ctypes.c_uint16(turn), ctypes.c_ulong(0), ctypes.byref(vcq)) == 0
    assert lib.utofu_reg_mem(vcq, ctypes.c_void_p(at), ctypes.c_size_t(65536), ctypes.c_ulong(0), ctypes.byref(stadd)) == 0
    _ctypes.dlclose(lib._handle)
    child = os.fork()
    if child == 0:
        ctypes.memset(at, 9, 65536)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert bytes(block) == bytes(65536), "the child wrote there"
"""


def test_unloaded(tmp_path):
    """What is registered is each process' own at fork, after dlclose too."""
    done = subprocess.run(
        [sys.executable, "-c", UNLOADED, Path(uct_tofu.lib_dir()) / "libtofucom.so"],
        env=environment("unloaded"),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr


SECONDS = os.environ.get("UCT_TOFU_SOAK_SECONDS", "5")


def soak(program, seconds, **extra):
    before = set(os.listdir("/dev/shm"))
    done = subprocess.run(
        [program, str(seconds), "1"],
        env=environment("soak", **extra),
        capture_output=True,
        text=True,
        timeout=float(seconds) + 60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = dict(re.findall(r"(\w+) (\d+)", done.stdout))
    assert int(counts["kills"]) > 50
    assert int(counts["ops"]) > 1000
    assert int(counts["errors"]) > 0, "nobody ever met a dead peer"
    assert set(os.listdir("/dev/shm")) <= before
    # the kernel has taken the names of the job back
    job = environment("soak")["UTOFU_EMU_JOB"]
    assert f"/{job}/" not in Path("/proc/net/unix").read_text()


@pytest.mark.timeout(300)
def test_kill_soak(kill_soak):
    """Processes killed at any point; set UCT_TOFU_SOAK_SECONDS for a long run."""
    soak(kill_soak, SECONDS)


@pytest.mark.timeout(300)
def test_kill_soak_sanitized(sanitized):
    soak(sanitized / "kill_soak", SECONDS, ASAN_OPTIONS="detect_leaks=0")
