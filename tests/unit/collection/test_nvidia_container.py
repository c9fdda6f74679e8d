"""When the CDI specification of a node is made again, and Docker gets NVIDIA's runtime."""

from __future__ import annotations

import pytest

from tests.support import node_modules as nodeside

container = nodeside.plugin("modules", "nvidia_container")


class TestSpecification:
    LISTED = "GPU 0: NVIDIA H100 (UUID: GPU-1a-2b)\n  MIG 1g.10gb Device 0: (UUID: MIG-3c-4d)\n"
    WHOLE = "/usr/lib/libcuda.so.580.95.05 GPU-1a-2b MIG-3c-4d"

    def test_none_another_driver_or_an_unnamed_slice_make_it_stale(self) -> None:
        assert container.stale(self.WHOLE, "580.95.05", self.LISTED) == container.stale("", "", "") == ""
        assert container.stale("", "580.95.05", self.LISTED) == "there is none"
        assert container.stale(self.WHOLE, "580.105.08", self.LISTED) == "it is not of driver 580.105.08"
        without = self.WHOLE.replace("MIG-3c-4d", "")
        assert container.stale(without, "580.95.05", self.LISTED) == "it does not name MIG-3c-4d"

    def test_docker_lacks_the_runtime_until_its_settings_name_it(self) -> None:
        assert container.docker_lacks_runtime("")
        assert container.docker_lacks_runtime('{"runtimes": null}')
        assert container.docker_lacks_runtime('{"runtimes": {"crun": {"path": "crun"}}}')
        assert not container.docker_lacks_runtime('{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}')

    @pytest.mark.parametrize(("text", "words"), [("{", "Expecting property name"), ("[]", "it is not an object")])
    def test_settings_that_docker_could_not_read_are_an_error(self, text: str, words: str) -> None:
        with pytest.raises(ValueError, match=words):
            container.docker_lacks_runtime(text)
