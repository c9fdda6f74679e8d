"""The stand-in for CUDA, compiled once."""

from __future__ import annotations

import pytest

from tests.support.compiler import compiled


@pytest.fixture(scope="package")
def libcuda(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Its path; FAKE_CUDA chooses what goes wrong (tests/fakes/cuda.c)."""
    return compiled("cuda", tmp_path_factory.mktemp("cuda") / "libcuda.so")
