# SPDX-License-Identifier: BSD-3-Clause
"""The transport core in C, between processes, over the emulator.

The core, the loader and the emulator are compiled from the sources of this tree,
once plainly and once with AddressSanitizer and UndefinedBehaviorSanitizer.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from parallel_cc import run_all, run_cc

HERE = Path(__file__).resolve().parent
CYTHON = HERE.parents[1] / "cython"

# program -> its cases; how many seconds each may take, the program says
CASES = {
    "rma": ["put_get", "iov_split", "big", "atomics", "early", "late", "nothing"],
    "memory": ["refusals", "memory", "threads", "attributes"],
    "am": ["lengths", "empty", "early", "late", "places", "storm2", "storm4", "sleeper", "crowd"],
    "credit": ["table_full", "quick_sender", "second_waiter"],
    "flow": [
        "pending", "first", "first_few", "fair", "replies", "nested", "no_handler",
        "churn", "two_ifaces", "refused",
    ],
    "keep": ["forever", "keep_churn", "quarter", "given_back", "keep_killed", "alignment"],
    "order": [
        "flush", "flush_many", "fence", "fence_weak", "fence_then_get", "flush_refused", "abandoned",
        "abandoned_buffers", "abandoned_stuck", "loader", "many_ifaces",
    ],
    "fail": [
        "killed_target", "killed_silent", "killed_idle", "never_there",
        "killed_receiver", "killed_before_grant",
        "killed_senders", "orderly_end", "successors", "not_sent", "gone_memory", "forged", "fuzz",
    ],
    "faulty": [f"word_{i}" for i in (0, 1, 2, 6, 22, 24, 26, 30)],
    "successor": [
        "stale_sender", "stale_at_once", "late_error", "old_ep", "lost_credit", "lost_recall",
    ],
    "lost": [
        "bcopy_lost", "in_place_lost", "short_lost", "spoiled", "parts", "turns", "many_wait",
        "one_notice", "heirs", "idle_channel", "last_word", "abandoned_get", "hole",
    ],
    "tnis": [
        "stripe", "stripe_parts", "neighbour", "late_single", "late_stripe",
        "fence_stripe", "spread", "killed_stripe", "exhausted",
    ],
    "invalidate": ["dead_key", "torn", "exclusive", "pointer", "ended_ep", "fair"],
    "check": [
        "beside", "beside_wakeup", "limit", "queued", "unsent", "canceled", "killed",
        "killed_wakeup", "no_room",
    ],
    "wake": ["ping_pong", "credit", "completions", "busy", "hostile"],
    "polled": [
        "useful", "mixed", "narrow", "wrap", "off", "inside", "held", "posted", "silent",
        "crowded", "turns", "awake", "owed", "asleep", "mute", "stopped", "killed",
        "killed_asked", "closed", "closed_known", "strangers", "bets",
    ],
    "in_place": [
        "lengths", "shorts", "ahead", "zcopy", "zcopy_late", "stopped", "take", "oneself",
        "receiver_refuses", "sender_refuses", "fakes", "killed", "idle", "turns", "closed",
    ],
    "shared": [
        "threads", "mixed", "closed", "closed_shared", "killed", "asleep", "multitude",
        "forged", "bad_key", "faulty", "faulty_own",
    ],
}  # fmt: skip
# run again with sanitizers: those that allocate, free and fail the most
SANITIZED = [
    ("rma", "iov_split"), ("memory", "memory"), ("am", "lengths"), ("flow", "nested"),
    ("flow", "churn"), ("flow", "pending"), ("flow", "first"), ("order", "abandoned"),
    ("order", "abandoned_buffers"),
    ("keep", "keep_churn"), ("keep", "given_back"), ("keep", "alignment"),
    ("order", "flush_many"), ("fail", "killed_target"), ("fail", "killed_receiver"),
    ("fail", "never_there"),
    ("fail", "killed_senders"), ("fail", "gone_memory"), ("fail", "forged"),
    ("successor", "stale_sender"), ("successor", "late_error"), ("successor", "old_ep"),
    ("successor", "lost_credit"), ("credit", "quick_sender"), ("credit", "second_waiter"),
    ("lost", "bcopy_lost"), ("lost", "short_lost"), ("lost", "turns"), ("lost", "abandoned_get"),
    ("lost", "hole"),
    ("tnis", "stripe_parts"), ("tnis", "killed_stripe"), ("tnis", "spread"),
    ("invalidate", "dead_key"), ("invalidate", "exclusive"), ("invalidate", "ended_ep"),
    ("check", "beside"), ("check", "limit"), ("check", "unsent"), ("check", "canceled"),
    ("check", "killed"),
    ("check", "no_room"), ("wake", "credit"), ("wake", "hostile"),
    ("polled", "mixed"), ("polled", "narrow"), ("polled", "inside"),
    ("polled", "turns"), ("polled", "killed"), ("polled", "strangers"),
    ("in_place", "lengths"), ("in_place", "shorts"), ("in_place", "zcopy"), ("in_place", "fakes"),
    ("in_place", "killed"), ("in_place", "take"), ("lost", "in_place_lost"),
    ("in_place", "closed"),
    ("shared", "threads"), ("shared", "closed"), ("shared", "killed"), ("shared", "forged"),
]  # fmt: skip
# not with ifaces that share: they have no lanes, no messages without notice, and fewer
# slots than handlers keep there; or the case uses the VCQ itself
OWN_VCQ = {
    ("keep", "keep_churn"), ("keep", "quarter"), ("keep", "given_back"),
    ("keep", "keep_killed"), ("order", "many_ifaces"), ("fail", "forged"),
    ("in_place", "shorts"),
    # they have no STags for it: docs/active-messages.md, Known limits
    ("successor", "stale_sender"), ("successor", "stale_at_once"), ("lost", "last_word"),
}  # fmt: skip
ENVIRONMENT = {
    "sleeper": {"UTOFU_NUM_MRQ_ENTRIES": "2048"},
    "crowd": {"UTOFU_NUM_MRQ_ENTRIES": "2048"},
    "storm4": {"UTOFU_NUM_MRQ_ENTRIES": "2048"},
    "narrow": {"POLLED_SLOTS": "4"},
    "parts": {"UTOFU_NUM_MRQ_ENTRIES": "2Ki"},
    "refused": {"UTOFU_EMU_FAULT": "toq=4"},
    "no_room": {"UTOFU_EMU_FAULT": "toq=4"},
}


def build(cc, folder, sanitize):
    """Compile the libraries and all programs into a folder."""
    flags = ["-std=gnu11", "-D_GNU_SOURCE", "-g", "-Wall", "-Wextra", "-Werror"]
    flags += [f"-I{CYTHON / 'core'}", f"-I{CYTHON / 'abi'}"]
    checked = ["-O1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined",
               "-fno-sanitize-recover=undefined"] if sanitize else ["-O2"]  # fmt: skip
    run_cc([*cc, *flags, "-O2", "-fPIC", "-shared", "-fvisibility=hidden",
            "-Wl,-soname,libtofucom.so",
            f"-Wl,--version-script={CYTHON / 'emu' / 'libtofucom.map'}",
            *sorted((CYTHON / "emu").glob("*.c")),
            "-Wl,-z,defs", "-o", folder / "libtofucom.so", "-lpthread"])  # fmt: skip
    run_cc([*cc, *flags, *checked, "-fPIC", "-shared",
            *sorted((CYTHON / "core").glob("*.c")),
            *sorted((CYTHON / "abi").glob("*.c")),
            "-o", folder / "libtofu_core.so", "-lpthread", "-ldl"])  # fmt: skip
    common = folder / "core_test.o"
    run_cc([*cc, *flags, *checked, "-c", HERE / "c" / "core_test.c", "-o", common])
    run_all([*cc, *flags, *checked, HERE / "c" / f"{name}.c", common,
             "-o", folder / name, f"-L{folder}",
             "-ltofu_core", "-Wl,-rpath,$ORIGIN", "-lpthread"]
            for name in CASES)  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def plain(cc, tmp_path_factory):
    """Folder of the programs as users build them."""
    return build(cc, tmp_path_factory.mktemp("core"), sanitize=False)


@pytest.fixture(scope="session")
def sanitized(cc, tmp_path_factory):
    """Folder of the programs with sanitizers."""
    return build(cc, tmp_path_factory.mktemp("core-san"), sanitize=True)


def limit_of(folder, program, case):
    """Seconds that a case may take, by its own table."""
    text = subprocess.run(
        [folder / program, "list"], capture_output=True, text=True, check=True
    ).stdout
    return int(re.search(rf"^{case} (\d+)$", text, re.M).group(1))


def run_case(processes, job, folder, program, case):
    """Run one case; its output when it fails."""
    environment = dict(os.environ, UTOFU_EMU_JOB=job, UCT_TOFU_BACKEND="emulator")
    environment.update(ENVIRONMENT.get(case, {}))
    if case == "loader":
        del environment["UCT_TOFU_BACKEND"]
    limit = limit_of(folder, program, case)
    code, output = processes.run(
        [folder / program, case], timeout=limit + 10, env=environment
    )
    assert code == 0, output[-8000:]
    assert f"{case}: ok" in output
    assert "ERROR: " not in output, output[-8000:]  # of a sanitizer


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("program", "case"), [(p, c) for p, cases in CASES.items() for c in cases]
)
def test_case(processes, job, plain, program, case):
    """Each case of each program."""
    run_case(processes, job, plain, program, case)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES["wake"])
@pytest.mark.parametrize("mode", ["UTOFU_EMU_STRICT=1", "UTOFU_EMU_TIMING=tofud"])
def test_sleep_in_modes(processes, job, plain, monkeypatch, case, mode):
    """What comes late, or in the thread of the wire, wakes as well."""
    monkeypatch.setenv(*mode.split("="))
    run_case(processes, job, plain, "wake", case)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("mode", ["UTOFU_EMU_STRICT=1", "UTOFU_EMU_TIMING=tofud"])
def test_abandoned_in_modes(processes, job, plain, monkeypatch, mode):
    """What comes late comes before the ep is gone."""
    monkeypatch.setenv(*mode.split("="))
    run_case(processes, job, plain, "order", "abandoned_buffers")


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES["polled"])
@pytest.mark.parametrize("mode", ["UTOFU_EMU_STRICT=1", "UTOFU_EMU_TIMING=tofud"])
def test_polled_in_modes(processes, job, plain, monkeypatch, case, mode):
    """The last bytes of a message come last, and messages in their order."""
    monkeypatch.setenv(*mode.split("="))
    run_case(processes, job, plain, "polled", case)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("program", "case"),
    [("rma", "put_get"), ("order", "fence"), ("order", "fence_weak"),
     ("order", "fence_then_get"), ("tnis", "fence_stripe")],
)  # fmt: skip
def test_fence_in_strict(processes, job, plain, monkeypatch, program, case):
    """What STRONG_ORDER does not order, a get after a put, a fence does."""
    monkeypatch.setenv("UTOFU_EMU_STRICT", "1")
    run_case(processes, job, plain, program, case)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES["in_place"])
@pytest.mark.parametrize("mode", ["UTOFU_EMU_STRICT=1", "UTOFU_EMU_TIMING=tofud"])
def test_in_place_in_modes(processes, job, plain, monkeypatch, case, mode):
    """What is there before its put lands is nobody's before that."""
    monkeypatch.setenv(*mode.split("="))
    run_case(processes, job, plain, "in_place", case)


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("program", "case"),
    [(p, c) for p, cases in CASES.items() for c in cases
     if (p not in ("tnis", "polled", "shared")) and ((p, c) not in OWN_VCQ)],
)  # fmt: skip
def test_case_on_shared_vcqs(processes, job, plain, monkeypatch, program, case):
    """An iface that shares its VCQ does what one with its own does."""
    monkeypatch.setenv("CORE_MAX_VCQS", "0")
    run_case(processes, job, plain, program, case)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("case", CASES["shared"])
@pytest.mark.parametrize("mode", ["UTOFU_EMU_STRICT=1", "UTOFU_EMU_TIMING=tofud"])
def test_shared_in_modes(processes, job, plain, monkeypatch, case, mode):
    """What comes late, or in the thread of the wire, finds whose it is as well."""
    monkeypatch.setenv(*mode.split("="))
    run_case(processes, job, plain, "shared", case)


@pytest.mark.timeout(240)
@pytest.mark.parametrize(("program", "case"), SANITIZED)
def test_sanitized(processes, job, sanitized, program, case):
    """No access outside, no leak, no undefined behaviour."""
    run_case(processes, job, sanitized, program, case)


def test_all_cases_listed(plain):
    """The programs have no case that is not run here."""
    for program, cases in CASES.items():
        text = subprocess.run(
            [plain / program, "list"], capture_output=True, text=True, check=True
        ).stdout
        assert [line.split()[0] for line in text.splitlines()] == cases


@pytest.mark.parametrize("case", ["put_get", "storm2"])
def test_slots_fit_any_mrq(processes, job, plain, case):
    """The least MRQ and odd settings of it: the bound holds, checked at open."""
    program = "rma" if case == "put_get" else "am"
    for entries in ("2Ki", "2048", "1", "5000", "128ki"):
        environment = dict(
            os.environ,
            UTOFU_EMU_JOB=job,
            UCT_TOFU_BACKEND="emulator",
            UTOFU_NUM_MRQ_ENTRIES=entries,
        )
        code, output = processes.run(
            [plain / program, case], timeout=70, env=environment
        )
        assert code == 0, output[-4000:]


@pytest.mark.parametrize("header", ["core/tofu.h", "abi/tofu_dl.h", "abi/utofu.h"])
@pytest.mark.parametrize("language", ["c", "c++"])
def test_header_alone(cc, tmp_path, header, language):
    """Public headers compile alone, as C and (where there is a compiler) C++."""
    source = tmp_path / f"one.{'c' if language == 'c' else 'cc'}"
    source.write_text(f'#include "{CYTHON / header}"\nint main(void) {{ return 0; }}\n')
    words = [*cc, "-x", language, "-Wall", "-Wextra", "-Werror", f"-I{CYTHON / 'abi'}",
             "-c", source, "-o", tmp_path / "one.o"]  # fmt: skip
    if language == "c++":
        probe = subprocess.run(
            [*cc, "-x", "c++", "-E", "-", "-o", os.devnull], input="", text=True,
            capture_output=True,
        )  # fmt: skip
        if probe.returncode != 0:
            pytest.skip("this compiler has no C++ front end")
    run_cc(words)
