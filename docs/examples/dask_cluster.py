# SPDX-License-Identifier: BSD-3-Clause
"""A Dask cluster of two workers whose data go over utofu.

python docs/examples/dask_cluster.py

Needs distributed-ucxx-cu12 (no GPU); docs/ucxx.md says how to install it.
"""

import importlib.util
import sys

import numpy as np

import ucp_glue.ucxx


def main():
    if importlib.util.find_spec("distributed_ucxx") is None:
        sys.exit(print("skipped: distributed_ucxx is not installed (docs/ucxx.md)"))
    ucp_glue.ucxx.enable()  # the workers inherit it
    from dask.distributed import Client, LocalCluster

    cluster = LocalCluster(n_workers=2, protocol="ucxx")
    with cluster, Client(cluster) as client:
        first, second = client.scheduler_info()["workers"]
        # Made by one worker, summed up by the other one: 8 MB go between.
        data = client.submit(np.arange, 1_000_000, workers=[first])
        total = client.submit(np.sum, data, workers=[second]).result()
        assert total == 1_000_000 * 999_999 // 2
        print(f"{cluster.scheduler_address.split(':')[0]}: the sum is {total}")


if __name__ == "__main__":  # workers import this file
    main()
