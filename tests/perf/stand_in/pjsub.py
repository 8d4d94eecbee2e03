# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for pjsub: runs a job script at once, as strict as the scripts need it.

It knows the options that perf/fugaku uses, in directives and as arguments (which are
stronger), and refuses all others.  As on the machine, the script is run from a copy, in
the folder of submission, with nothing of the caller's environment but what -x names.
The output goes to NAME.JOBID.out, the exit code of the script to NAME.JOBID.code.

STAND_IN_PATH is PATH of the job, STAND_IN_NODES how many nodes there are.
"""

import os
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

SHAPE = r"(\d+)(?:x(\d+))?(?:x(\d+))?(:(?:torus|mesh|noncont))?(?::strict(?:-io)?)?"
GROUPS = {"small": 384, "small-torus": 384, "large": 12288}


def refuse(reason):
    sys.exit(f"[ERR.] PJM 0001 pjsub {reason}")


def split(words):
    """(options, what follows them); an option is (name, value)."""
    options, words = [], list(words)
    while words and words[0].startswith("-"):
        name = words.pop(0)
        if name == "-j":
            options.append((name, ""))
        elif name in ("-g", "-N", "-L", "-x", "--mpi"):
            if not words:
                refuse(f"{name}: no value")
            options.append((name, words.pop(0)))
        else:
            refuse(f"unknown option {name}")
    return options, words


def directives(script):
    found = []
    for number, line in enumerate(script.read_text().splitlines(), 1):
        if line.startswith("#PJM"):
            options, rest = split(shlex.split(line[4:]))
            if rest or not options:
                refuse(f"{script.name}:{number}: {line}")
            found += options
    return found


def settle(options):
    """What the job is, of all options in order."""
    job = {"node": "1", "rscgrp": "small", "max-proc-per-node": "1"}
    job["env"] = {}
    for name, value in options:
        if name == "-x":
            for item in value.split(","):
                key, equal, text = item.partition("=")
                if not equal:
                    refuse(f"-x {item}")
                job["env"][key] = text
            continue
        if name not in ("-L", "--mpi"):
            job[name] = value
            continue
        known = {"-L": ("node", "rscgrp", "elapse"), "--mpi": ("max-proc-per-node",)}
        for item in value.split(","):
            key, equal, text = item.partition("=")
            if key not in known[name] or not equal:
                refuse(f"{name} {item}")
            job[key] = text
    return job


def count_nodes(job):
    match = re.fullmatch(SHAPE, job["node"])
    if match is None:
        refuse(f"node={job['node']}")
    nodes = 1
    for number in match.groups()[:3]:
        nodes *= int(number or 1)
    if job["rscgrp"] not in GROUPS or nodes > GROUPS[job["rscgrp"]]:
        refuse(f"rscgrp={job['rscgrp']} with {nodes} nodes")
    if match.group(4) == ":torus" and job["rscgrp"] == "small":
        refuse("rscgrp=small has no torus")
    if nodes > int(os.environ.get("STAND_IN_NODES", "12")):
        refuse(f"{nodes} nodes: there are not so many")
    return nodes


def main():
    given, rest = split(sys.argv[1:])
    if len(rest) != 1:
        refuse("one script")
    script = Path(rest[0])
    job = settle([*directives(script), *given])
    if "-g" not in job:
        refuse("-g: no group")
    if not re.fullmatch(r"\d+:\d\d:\d\d", job.get("elapse", "")):
        refuse(f"elapse={job.get('elapse')}")
    hours, minutes, seconds = map(int, job["elapse"].split(":"))
    nodes = count_nodes(job)
    each = int(job["max-proc-per-node"])
    name, number = job.get("-N", script.name), str(os.getpid())
    env = {name: os.environ[name] for name in ("HOME", "LANG") if name in os.environ}
    env |= {"PATH": os.environ["STAND_IN_PATH"]}
    env |= {"PJM_JOBID": number, "PJM_NODE": str(nodes), "PJM_JOBNAME": name}
    env |= {"PJM_MPI_PROC": str(nodes * each), "PJM_PROC_BY_NODE": str(each)}
    env |= {"PJM_ENVIRONMENT": "BATCH", **job["env"]}
    print(f"[INFO] PJM 0000 pjsub Job {number} submitted.", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "script"
        copy.write_text(script.read_text())
        copy.chmod(0o700)
        with open(f"{name}.{number}.out", "wb") as output:
            try:
                code = subprocess.run(
                    [str(copy)],
                    check=False,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    timeout=hours * 3600 + minutes * 60 + seconds,
                ).returncode
            except subprocess.TimeoutExpired:
                code = 137
    Path(f"{name}.{number}.code").write_text(str(code))


main()
