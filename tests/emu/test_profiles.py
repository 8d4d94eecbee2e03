# SPDX-License-Identifier: BSD-3-Clause
"""UTOFU_EMU_TIMING names a profile (docs/timing.md): what is one, and what is refused."""

import os
import re
import shutil
import subprocess

import pytest

SLOW = 100_000  # ns: no get takes so long by itself


@pytest.fixture(params=["emu_tests", "sanitized"])
def tests(request):
    """The C tests, also with AddressSanitizer and UBSan."""
    found = request.getfixturevalue(request.param)
    return found / "emu_tests" if request.param == "sanitized" else found


def least_time(emu_tests, profile, **extra):
    """What a get takes at least, in ns, and what the library says."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("UTOFU_")}
    env |= {"UTOFU_EMU_JOB": f"profile-{os.getpid()}", "UTOFU_EMU_TIMING": str(profile), **extra}
    env |= {"ASAN_OPTIONS": "detect_leaks=0", "UBSAN_OPTIONS": "halt_on_error=1"}
    done = subprocess.run(
        [emu_tests, "timed_by_variable"],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    if done.returncode == 77:
        pytest.skip(done.stderr.strip() or done.stdout.strip())
    assert done.returncode == 0, done.stdout + done.stderr
    said = done.stdout + done.stderr
    return float(re.search(r"a get takes (\d+) ns", said)[1]), said


@pytest.mark.parametrize(
    "text",
    [
        "get = 100000",
        "\tget=1e5\t# slow\r\n",
        "#" + " " * 254 + "get = 1\nget = 100000\n",
        "# " + "x" * 1000 + "\n\nget = 100000\n",
        "get = 1\nget = 100000.25 #\n",
    ],
)
def test_profiles(tests, tmp_path, text):
    path = tmp_path / "my.profile"
    path.write_text(text)
    took, said = least_time(tests, path)
    assert took >= SLOW, said
    assert "UTOFU_EMU_TIMING" not in said


def test_the_longest_profile(tests, tmp_path):
    path = tmp_path / "my.profile"
    path.write_text("get = 100000\n".ljust(16_384, "#"))
    took, said = least_time(tests, path)
    assert took >= SLOW, said


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("get = 100000\nget 7\n", ":2 is not"),
        ("get = 100000\ngett = 7\n", ":2 is not"),
        ("get = 100000\nge = 7\n", ":2 is not"),
        ("get = 100000 ns\n", ":1 is not"),
        ("get = -1\n", ":1 is not"),
        ("get = nan\n", ":1 is not"),
        ("get = 1e10\n", ":1 is not"),
        ("get =\n", ":1 is not"),
        ("get = 100000\n\0", "is no text"),
        ("get = 100000\n" + "#" * 16_384, "File too large"),
    ],
)
def test_what_is_no_profile(tests, tmp_path, text, why):
    path = tmp_path / "my.profile"
    path.write_text(text)
    took, said = least_time(tests, path)
    assert took < SLOW
    assert why in said
    assert "off" in said


@pytest.mark.parametrize(
    ("kind", "why"),
    [
        ("pipe", "Invalid argument"),
        ("directory", "Is a directory"),
        ("device", "Invalid argument"),
        ("nothing", "No such file"),
    ],
)
def test_what_is_no_file(tests, tmp_path, kind, why):
    """Each is reported, and none holds the program up."""
    path = tmp_path / "my.profile"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "directory":
        path.mkdir()
    elif kind == "device":
        path = "/dev/zero"
    took, said = least_time(tests, path)
    assert took < SLOW
    assert "can't open the profile" in said
    assert why in said


@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file(tests, tmp_path, kind):
    path = tmp_path / "my.profile" if kind == "pipe" else "/dev/zero"
    if kind == "pipe":
        os.mkfifo(path)
    _, said = least_time(tests, path)
    assert "Invalid argument (it is no regular file); off" in said


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("get 7", '"get 7"'),
        ("\tgett = 7 # seven", '"gett"'),
        ("= 7", '"= 7"'),
        ("get = 100000 ns \r", '"100000 ns"'),
        ("get = 1,5", '"1,5"'),
        ("get = ", '""'),
        ("get = " + "9" * 50, '"' + "9" * 40 + '"'),
    ],
)
def test_the_part_that_is_wrong_is_quoted(tests, tmp_path, line, part):
    path = tmp_path / "my.profile"
    path.write_text(f"get = 1\n{line}\n")
    _, said = least_time(tests, path)
    assert f": {part}; off" in said


def test_a_point_in_every_locale(tests, tmp_path):
    """Numbers have a point also where the program's language has a comma."""
    if shutil.which("localedef") is None:
        pytest.skip("no localedef")
    made = subprocess.run(
        ["localedef", "-i", "de_DE", "-f", "UTF-8", tmp_path / "de_DE.UTF-8"],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode > 1:
        pytest.skip(f"localedef: {made.stderr.strip()}")
    path = tmp_path / "my.profile"
    path.write_text("get = 100000.5\n")
    took, said = least_time(
        tests,
        path,
        LOCPATH=str(tmp_path),
        EMU_LOCALE="de_DE.UTF-8",
        UTOFU_EMU_FAULT="put:prob=0.5:error=MRQ_PEER",
    )
    assert took >= SLOW, said
    assert "not a rule" not in said
