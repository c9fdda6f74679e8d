"""What the module nvidia_driver holds, by apt's and dpkg's words."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.support import node_modules as nodeside

driver = nodeside.plugin("modules", "nvidia_driver")

INSTALLED = {
    "linux-modules-nvidia-580-server-open-generic": "6.8.0-88.89",
    "libnvidia-compute-580-server": "580.95.05-0ubuntu0.24.04.1",
    "nvidia-utils-580-server": "580.95.05-0ubuntu0.24.04.1",
    "linux-image-6.8.0-88-generic": "6.8.0-88.89",
    "linux-image-generic": "6.8.0-88.89",
    "linux-headers-generic": "6.8.0-88.89",
    "linux-base": "4.5",
}
KERNEL = {"linux-image-6.8.0-88-generic", "linux-image-generic", "linux-headers-generic"}


@pytest.mark.parametrize("kernel", [True, False])
def test_the_kernel_is_held_with_modules_that_were_built_for_it(kernel: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def installed(patterns: list[str]) -> dict[str, str]:
        return {name: version for name, version in INSTALLED.items() if patterns == ["*"] or name.startswith("linux-")}

    monkeypatch.setattr(driver.node_packages, "installed", installed)
    monkeypatch.setattr(driver.nvidia_facts, "output_of", lambda argv: "")
    wanted = {"packages": list(INSTALLED)[:3], "hold_kernel": kernel, "load": False, "notice": "", "devices": []}

    changes, reboot, _state, _warning = driver.activate(SimpleNamespace(check_mode=True), wanted)

    held = {entry["name"] for entry in changes if entry["action"] == "hold"}
    assert held == set(list(INSTALLED)[:3]) | (KERNEL if kernel else set())
    assert reboot == ""
