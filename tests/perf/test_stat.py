# SPDX-License-Identifier: BSD-3-Clause
"""The kernels' buckets of times against exact percentiles."""

import random
import subprocess
from pathlib import Path

import pytest

PERF = Path(__file__).resolve().parents[2] / "cython" / "perf"
QUANTILES = (0.5, 0.9, 0.99, 0.999)

PROGRAM = """
#include <stdarg.h>
#include "perf.h"

void perf_fail(int code, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    exit(code);
}

int main(void)
{
    static const double q[] = {0.5, 0.9, 0.99, 0.999};
    static struct perf_log log[3];
    unsigned long       value;

    perf_tick_start();
    for (int i = 0; i < 3; ++i) {
        perf_log_clear(&log[i]);
    }
    for (int i = 0; scanf("%lu", &value) == 1; ++i) {
        perf_log_add(&log[1 + i % 2], value);
    }
    perf_log_merge(&log[0], &log[1]);
    perf_log_merge(&log[0], &log[2]);
    for (int i = 0; i < 4; ++i) {
        printf("%.3f\\n", perf_log_quantile(&log[0], q[i]));
    }
    printf("%lu %lu %lu %lu\\n", log[0].count, log[0].sum, log[0].min, log[0].max);
    return perf_tick_seconds() > 0 ? 0 : 1;
}
"""


@pytest.fixture(scope="module")
def program(compile_c, tmp_path_factory):
    source = tmp_path_factory.mktemp("stat") / "stat_check.c"
    source.write_text(PROGRAM)
    return compile_c(
        [source, PERF / "perf_stat.c"], "-D_GNU_SOURCE", f"-I{PERF}", name="stat"
    )


@pytest.mark.parametrize("scale", [100, 1000, 10**6, 10**12])
def test_percentiles_are_within_a_percent(program, scale):
    draw = random.Random(scale)
    values = [int(draw.lognormvariate(0, 1) * scale) + 1 for _ in range(20000)]
    text = "\n".join(map(str, values))
    done = subprocess.run(
        [program], check=True, input=text, capture_output=True, text=True, timeout=60
    )
    *quantiles, totals = done.stdout.splitlines()
    values.sort()
    for q, found in zip(QUANTILES, quantiles, strict=True):
        exact = values[-(-int(q * 1000) * len(values) // 1000) - 1]
        assert float(found) == pytest.approx(exact, rel=0.01, abs=0.5), q
    count, total, least, most = map(int, totals.split())
    assert (count, total) == (len(values), sum(values))
    assert (least, most) == (values[0], values[-1])


def test_borders_of_buckets(program):
    for value in (0, 1, 255, 256, 257, 511, 512, 2**32, 2**63, 2**64 - 1):
        done = subprocess.run(
            [program], check=True, input=str(value), capture_output=True, text=True
        )
        assert float(done.stdout.split()[0]) == pytest.approx(max(value, 1), rel=1e-9)
