# SPDX-License-Identifier: BSD-3-Clause
"""``python -m uct_tofu`` is the command ``uct-tofu``, also where that is in no path."""

from uct_tofu.cli import main

if __name__ == "__main__":
    main(prog_name="uct-tofu")
