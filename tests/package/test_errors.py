# SPDX-License-Identifier: BSD-3-Clause
"""Exceptions go from process to process: a pool that can't unpickle one waits for ever."""

import concurrent.futures
import inspect
import multiprocessing
import pickle

import pytest

import ucp_glue.errors
import uct_tofu.errors

MADE = {
    uct_tofu.errors.UtofuError: ("utofu_put", -515, "UTOFU_ERR_BUSY", "VCQ 5", None, 7),
    uct_tofu.errors.TofuError: ("tofu_ep_put_zcopy", -5, "8 bytes"),
    uct_tofu.errors.PeerFailedError: ("rank 3 has ended", 3),
    ucp_glue.errors.UcpError: ("ucp_ep_create", -6, "no transport"),
}
CLASSES = [
    cls
    for module in (uct_tofu.errors, ucp_glue.errors)
    for _, cls in inspect.getmembers(module, inspect.isclass)
    if issubclass(cls, BaseException) and cls.__module__ == module.__name__
]


def arguments(cls):
    return next((made for base, made in MADE.items() if issubclass(cls, base)), ("a text",))


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_an_error_is_pickled(cls):
    error = cls(*arguments(cls))
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is cls
    assert str(again) == str(error)
    assert vars(again) == vars(error)


def fails(kind):
    if kind == "utofu":
        uct_tofu.Vcq(uct_tofu.Backend.load(), 99)
    else:
        ucp_glue.Context(config={"NO_SUCH": "1"})


@pytest.mark.parametrize(
    "kind, cls", [("utofu", uct_tofu.UtofuError), ("ucp", ucp_glue.UcpError)]
)
def test_an_error_comes_out_of_a_pool(kind, cls):
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, mp_context=context) as pool:
        with pytest.raises(cls):
            pool.submit(fails, kind).result(timeout=60)
