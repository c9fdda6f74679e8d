"""Damaged node lists: whatever is done to a file, the answer is a cluster or an InputError, never a crash."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest

from deepopsctl.cluster.inventory import render_inventory
from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.errors import InputError
from deepopsctl.imports.request import InitRequest, read_request
from deepopsctl.model.cluster import Cluster
from tests.support.paths import ROOT

NODE_LISTS = sorted((ROOT / "inventory" / "node-lists").iterdir())
PIECES = [
    b"[",
    b"]",
    b"{{",
    b"{",
    b"}",
    b"&a",
    b"*a",
    b"!!x",
    b"\xff",
    b"\x00",
    b"\xef\xbb\xbf",
    b"\n",
    b"\r",
    b'"',
    b"'",
]
PIECES += [
    b",",
    b"\t",
    b":",
    b"- ",
    b"#",
    b"=",
    b"[1-99999999]",
    b"\x1b[0m",
    "é".encode(),
    b"null",
    b"? ",
    b"|\n",
    b"-9",
]


def damaged(data: bytes, seed: int) -> bytes:
    generator = random.Random(seed)  # noqa: S311 - repeatable, guards no secret
    content = bytearray(data)
    for _ in range(generator.randint(1, 6)):
        place = generator.randrange(len(content) or 1)
        match generator.randrange(4):
            case 0:
                content[place:place] = generator.choice(PIECES)
            case 1:
                del content[place : place + generator.randint(1, 30)]
            case 2:
                content[place : place + 1] = generator.choice(PIECES)
            case _:
                content = content[:place] if generator.random() < 0.2 else content
    return bytes(content)


def outcome(data: bytes) -> Cluster | InputError:
    try:
        return read_request(InitRequest(Path("hpc"), controller=("ctl1",), stdin=io.BytesIO(data))).cluster
    except InputError as error:
        return error


@pytest.mark.parametrize("path", NODE_LISTS, ids=lambda path: path.name)
def test_a_damaged_file_gives_a_cluster_or_an_input_error(path: Path) -> None:
    outcomes = [outcome(damaged(path.read_bytes(), seed)) for seed in range(150)]
    errors = [found for found in outcomes if isinstance(found, InputError)]
    clusters = [found for found in outcomes if isinstance(found, Cluster)]
    assert errors
    assert clusters
    assert all(problem.where and problem.message and problem.hint for error in errors for problem in error.problems)
    assert [parse_spec(render_spec(cluster), "cluster.yml") for cluster in clusters] == clusters
    assert not any("{{ x" in render_inventory(cluster) for cluster in clusters)
