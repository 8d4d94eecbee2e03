# SPDX-License-Identifier: BSD-3-Clause
"""A checked model of the active-message protocol (docs/active-messages.md).

``sizes`` holds its constants, ``protocol`` the steps of senders and receiver as
pure functions, ``system`` the network and the deaths of processes, ``explore`` the
search, ``cases`` what is searched.  ``keep`` searches the ring of large slots while
messages are kept.  Needs nothing native.
"""

from uct_tofu.model.explore import Found, Result, explore, walk
from uct_tofu.model.sizes import CONSTANTS, MUTATIONS, Sizes
from uct_tofu.model.system import System

__all__ = [
    "CONSTANTS",
    "MUTATIONS",
    "Found",
    "Result",
    "Sizes",
    "System",
    "explore",
    "walk",
]
