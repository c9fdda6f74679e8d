"""Until when a node's certificates are good, read with nothing but Python's standard library."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from deepopsctl.monitoring.collectors import OF_EXPORTERS, OF_LOGS, settings_of
from deepopsctl.monitoring.monitored_node import MonitoredNode
from deepopsctl.node_programs.services.node_metrics.certificates import COLLECTOR, ends_at, read_expiry
from tests.support.cluster import wait_until


def certificate(end: datetime, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> x509.Certificate:
    long = {NameOID.COMMON_NAME: "a" * 60, NameOID.LOCALITY_NAME: "b" * 100}
    name = x509.Name([x509.NameAttribute(part, text) for part, text in long.items()])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = builder.serial_number(7).not_valid_before(end - timedelta(3650)).not_valid_after(end)
    return builder.sign(key, hashes.SHA256())


def reported(*paths: Path | str) -> dict[tuple[str, str], float]:
    return {(sample.name, Path(sample.labels["path"]).name): sample.value for sample in read_expiry(map(str, paths))}


@pytest.mark.parametrize("year", [1999, 2026, 2049, 2050, 2126])
@pytest.mark.parametrize("key", [ec.generate_private_key(ec.SECP256R1()), rsa.generate_private_key(65537, 2048)])
def test_the_end_of_any_certificate_is_read(year: int, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> None:
    end = datetime(year, 2, 28, 23, 59, 58, tzinfo=UTC)

    assert ends_at(certificate(end, key).public_bytes(Encoding.DER)) == end.timestamp()


def test_of_a_file_with_several_the_first_to_end_counts(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    ends = [datetime(2031, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)]
    chain = tmp_path / "chain.pem"
    chain.write_bytes(b"# a chain\n" + b"".join(certificate(end, key).public_bytes(Encoding.PEM) for end in ends))

    assert reported(chain)["deepops_certificate_expires_seconds", "chain.pem"] == ends[1].timestamp()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no certificate",
        b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nAAAA\n",
        b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
        b"-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
    ],
)
def test_what_can_not_be_read_is_reported_and_hides_no_other(tmp_path: Path, content: bytes) -> None:
    broken, missing, good = tmp_path / "broken.pem", tmp_path / "missing.pem", tmp_path / "good.pem"
    broken.write_bytes(content)
    key = ec.generate_private_key(ec.SECP256R1())
    good.write_bytes(certificate(datetime(2030, 1, 1, tzinfo=UTC), key).public_bytes(Encoding.PEM))

    result = reported(broken, missing, good)

    readable = {name: value for (metric, name), value in result.items() if metric == "deepops_certificate_readable"}
    assert readable == {"broken.pem": 0, "missing.pem": 0, "good.pem": 1}
    assert ("deepops_certificate_expires_seconds", "broken.pem") not in result
    assert reported(f"{tmp_path}/*.none") == {}
    assert {metric for metric, _ in result} <= set(COLLECTOR.metrics)


@pytest.fixture
def made_by_gpg() -> Iterator[Callable[..., bytes]]:
    """What gpg exports of keys that it has made, one for each time that they are to last."""
    # not the test's own directory: its path is too long for the agent's socket
    home = Path(tempfile.mkdtemp(prefix="gpg-"))
    common = ["gpg", "--homedir", str(home), "--batch", "--quiet", "--passphrase", ""]

    def run(*arguments: str) -> bytes:
        return subprocess.run([*common, *arguments], check=True, capture_output=True, timeout=300).stdout

    def make(*lasting: str, armor: bool = True, then: str = "") -> bytes:
        for number, each in enumerate(lasting):
            run("--quick-generate-key", f"Key {len(lasting)}{number} <key@example.com>", "ed25519", "sign", each)
        if then:
            listed = run("--list-keys", "--with-colons").decode().splitlines()
            (fingerprint,) = [line.split(":")[9] for line in listed if line.startswith("fpr:")]
            # a moment later by the clock, which signatures have in seconds
            run("--faked-system-time", f"{int(time.time()) + 5}!", "--quick-set-expire", fingerprint, then)
        return run(*(["--armor"] if armor else []), "--export")

    yield make
    subprocess.run(["gpgconf", "--homedir", str(home), "--kill", "all"], check=False, timeout=300)
    # the agent removes its sockets as it ends, maybe in the middle of this
    wait_until("gpg's agent has ended", lambda: not list(home.glob("S.*")), 60)
    shutil.rmtree(home)


@pytest.mark.parametrize(
    ("lasting", "options", "years"),
    [
        pytest.param(["2y"], {}, 2, id="armoured"),
        pytest.param(["2y"], {"armor": False}, 2, id="binary"),
        pytest.param(["1y"], {"then": "5y"}, 5, id="prolonged"),
        pytest.param(["0", "3y", "1y"], {}, 1, id="several"),
        pytest.param(["0"], {}, None, id="for ever"),
    ],
)
def test_the_end_of_the_key_of_a_repository_that_ends_first_is_read(
    made_by_gpg: Callable[..., bytes], tmp_path: Path, lasting: list[str], options: dict[str, Any], years: int | None
) -> None:
    (tmp_path / "deepopsctl-x.asc").write_bytes(made_by_gpg(*lasting, **options))

    result = reported(f"{tmp_path}/deepopsctl-*")

    assert result.pop(("deepops_certificate_readable", "deepopsctl-x.asc")) == 1
    left = [timedelta(seconds=end - time.time()).days for end in result.values()]
    assert left == ([] if years is None else [pytest.approx(365 * years, abs=2)])


def watched(groups: frozenset[str], name: str = "gpu01", **settings: object) -> list[str]:
    machine = MonitoredNode(name, "hpc", groups, "192.0.2.1", monitoring_host="ctl1", settings=settings)
    paths = settings_of(machine).get("certificates", {"paths": []})["paths"]
    assert isinstance(paths, list)
    return paths


def test_what_a_node_shows_to_others_is_watched_there_and_nothing_else() -> None:
    compute, gpus = frozenset({"slurm_compute"}), frozenset({"slurm_compute", "nvidia_gpu"})

    assert watched(compute) == []
    assert watched(compute, logs=True, certificates=["/srv/*.pem"]) == [*OF_LOGS, "/srv/*.pem"]
    assert watched(compute, exporter_tls=True) == [*OF_EXPORTERS]
    assert watched(gpus) == ["/etc/apt/keyrings/deepopsctl-*"]
    grafana = "/etc/ssl/grafana.pem"
    result = watched(compute, name="ctl1", grafana_certificate=grafana)
    assert result == [grafana, "/etc/apt/keyrings/deepopsctl-*"]
