"""`billing:` of cluster.yml: read, checked, written."""

from __future__ import annotations

import pytest

from deepopsctl.cluster.spec import parse_spec
from deepopsctl.cluster.writer import render_spec
from deepopsctl.gpus.reference_units import units_of
from deepopsctl.model.cluster import Cluster
from deepopsctl.model.policy import Billing
from tests.support.problems import faults

SPEC = """\
schema: 1
cluster: {name: hpc}
nodes:
  - {names: ctl1, addresses: 192.0.2.1, roles: [controller]}
  - {names: "gpu[01-04]", addresses: "192.0.2.[11-14]", roles: [compute], gpus: {type: TYPE, count: 4}}
"""


def spec(gpu_type: str, billing: str) -> Cluster:
    return parse_spec(SPEC.replace("TYPE", gpu_type) + billing, "cluster.yml")


def test_billing_is_read_written_and_goes_to_the_inventory() -> None:
    cluster = spec("h200", "billing: {gpus: {h200: 15.5}}\n")

    assert cluster.policy.billing == Billing({"h200": 15.5})
    assert parse_spec(render_spec(cluster), "cluster.yml").policy == cluster.policy
    assert cluster.policy.variable()["billing"] == {"gpus": {"h200": 15.5}}


def test_a_value_counts_whatever_the_case_of_its_type() -> None:
    for declared, written in (("h100", "H100"), ("H100", "h100"), ("MI250", "MI250")):
        billing = spec(declared, f"billing: {{gpus: {{{written}: 15.5}}}}\n").policy.billing

        assert billing is not None
        assert units_of(declared, billing.gpus) == 15.5


def test_an_empty_section_means_the_published_values_and_none_means_none() -> None:
    written = render_spec(spec("h100", "billing: {}\n"))

    assert parse_spec(written, "cluster.yml").policy.variable()["billing"] == {"gpus": {}}
    assert spec("h100", "").policy.variable() == {}


@pytest.mark.parametrize(
    ("gpu_type", "billing", "message"),
    [
        ("a100", "billing: {}", "cluster.yml:6: billing.gpus: a100 has a100_40gb 4 and a100_80gb 4.8 RGU"),
        ("h200", "billing: {}", "cluster.yml:6: billing.gpus: no reference units are known for GPUs of type h200"),
        ("h100", "billing: {gpus: {h100: much}}", "cluster.yml:6: billing.gpus.h100: 'much' is not a valid number"),
        ("h100", "billing: {gpus: {h100: 0}}", "cluster.yml:6: billing.gpus.h100: a GPU that costs nothing"),
        ("h100", "billing: {units: rgu}", "cluster.yml:6: billing.units: unknown key"),
    ],
)
def test_refuses_what_can_not_be_billed(gpu_type: str, billing: str, message: str) -> None:
    assert faults(spec, gpu_type, f"{billing}\n")[0] == message
