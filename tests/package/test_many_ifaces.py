# SPDX-License-Identifier: BSD-3-Clause
"""More ifaces than there are CQs: they share."""

import json
import subprocess
import sys
import textwrap

PROGRAM = textwrap.dedent(
    """
    from uct_tofu import Endpoint, Iface, MemoryDomain
    NUMBER = 300
    with MemoryDomain() as md:
        ifaces = [Iface(md) for _ in range(NUMBER)]
        came = [[] for _ in ifaces]
        for iface, messages in zip(ifaces, came):
            iface.set_message_handler(1, lambda h, p, m=messages: m.append(bytes(h)))
        eps = [
            Endpoint(iface, ifaces[(7 * i + 1) % NUMBER].address)
            for i, iface in enumerate(ifaces)
        ]
        requests = [
            ep.am(1, bytes(20_000 * (number % 2)), header=b"%d,%d" % (i, number))
            for number in range(4)
            for i, ep in enumerate(eps)
        ]
        for turn in range(10_000):
            for iface in ifaces:
                iface.progress()
            if sum(map(len, came)) == 4 * NUMBER:
                break
        for i in range(NUMBER):
            to = came[(7 * i + 1) % NUMBER]
            assert to == [b"%d,%d" % (i, number) for number in range(4)], (i, to)
        for request in requests:
            request.wait(10)
        for item in eps + ifaces:
            item.close()
    print("ok")
    """
)


def test_many_ifaces_of_one_process(processes, tmp_path, job):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    code, output = processes.run([sys.executable, str(script)], cwd=tmp_path)
    assert code == 0, output
    lines = output.splitlines()
    assert lines[-1] == "ok", output
    # said once, in words
    (line,) = lines[:-1]
    assert "CQs for ifaces of their own" in line and "shares one with others" in line


IDLE = textwrap.dedent(
    """
    import subprocess, sys
    from uct_tofu import Iface, MemoryDomain
    with MemoryDomain() as md, Iface(md):
        subprocess.run([sys.executable, "-m", "uct_tofu", "emu", "ls", "--json"])
    """
)


def test_an_idle_iface_has_two_vcqs(tmp_path, job):
    """Other TNIs are for memory that peers reach, not for an iface's own."""
    script = tmp_path / "program.py"
    script.write_text(IDLE)
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True
    )
    jobs = {item["job"]: item for item in json.loads(done.stdout)["jobs"]}
    (process,) = jobs[job]["processes"]
    assert sorted(vcq["kind"] for vcq in process["vcqs"]) == ["exclusive", "shared"]
