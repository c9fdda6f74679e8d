"""Whether a node's GPUs agree with cluster.yml, by the driver and by slurmd."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ansible_collections.deepopsctl.cluster.plugins.module_utils.node import command, files as node_files
from ansible_collections.deepopsctl.cluster.plugins.module_utils.nvidia import facts as nvidia_node
from ansible_collections.deepopsctl.cluster.plugins.module_utils.slurm import (
    client as slurm_client,
    node_states as slurm_node_states,
    slurm_output,
)

QUERY = ("nvidia-smi", "--query-gpu=name,pci.bus_id", "--format=csv,noheader")
# a GPU without persistence mode takes seconds to wake, and a node may have sixteen
ANSWER_S = 60
HINT = (
    "a GPU that fell off the bus may come back with a reboot (`dmesg | grep -i xid` on the drained node); "
    "else correct `gpus:` in cluster.yml and deploy"
)


class Driver:
    """The driver's GPUs: {minor or position: product}; `silent` is why it reports none where it should."""

    def __init__(self, cards: Mapping[int, str] | None = None, silent: str = "") -> None:
        self.cards = cards
        self.silent = silent

    @property
    def words(self) -> str:
        """`7 x NVIDIA H100 80GB HBM3`."""
        if not self.cards:
            return self.silent or ("nothing (there is none)" if self.cards is None else "none")
        names = list(self.cards.values())
        return " + ".join(f"{names.count(name)} x {name}" for name in sorted(set(names)))


def ask_driver(root: str = "/") -> Driver:
    """The driver's GPUs; no cards (None) where there is no driver to ask: simulated GPUs have none."""
    result = command.run_merged(QUERY, ANSWER_S)
    if result.ok:
        return Driver(read_cards(result.output, root))
    devices = [] if os.path.exists(os.path.join(root, nvidia_node.CONTAINER[1:])) else nvidia_node.devices(root)["gpus"]
    if not devices or result.status == command.MISSING:
        return Driver()
    words = [line.strip() for line in result.message.splitlines() if line.strip()]
    return Driver(silent=f"none (nvidia-smi: {words[0] if words else 'failed'})")


def read_cards(output: str, root: str = "/") -> dict[int, str]:
    """{minor: product} from nvidia-smi's lines; by position where the kernel module does not say the minors."""
    cards = {}
    for position, line in enumerate(line for line in output.splitlines() if "," in line):
        name, _comma, address = (part.strip() for part in line.rpartition(","))
        cards[_minor(address, root, position)] = name
    return cards


def _minor(address: str, root: str, position: int) -> int:
    """The N of /dev/nvidiaN: nvidia-smi writes the PCI domain with eight digits, the kernel with four."""
    domain, _colon, rest = address.lower().partition(":")
    path = f"proc/driver/nvidia/gpus/{domain[-4:]}:{rest}/information"
    match = re.search(r"^Device Minor:\s*(\d+)", node_files.text(os.path.join(root, path)), re.MULTILINE)
    return int(match.group(1)) if match else position


def accepts(card: Mapping[str, Any], product: str) -> bool:
    """Whether a GPU that the driver calls `product` is of the type that cluster.yml gives the card."""
    if product in card["products"] or not card["products"]:
        return True
    if product in card["others"]:
        return False
    tokens = re.findall("[a-z0-9]+", product.lower())
    # `rtx4090` in NVIDIA GeForce RTX 4090, and no `l4` in NVIDIA L40S
    runs = {"".join(tokens[first:last]) for first in range(len(tokens)) for last in range(first + 1, len(tokens) + 1)}
    return card["type"].lower() in runs


def _driver_differs(cards: Sequence[Mapping[str, Any]], driver: Driver) -> bool:
    if driver.silent:
        return True
    if driver.cards is None:
        return False
    if len(driver.cards) < len(cards):
        return True
    rest = dict(driver.cards)
    for card in cards:
        if card["minor"] is not None:
            if card["minor"] not in rest or not accepts(card, rest.pop(card["minor"])):
                return True
            continue
        fitting = [number for number, product in rest.items() if accepts(card, product)]
        if not fitting:
            return True
        rest.pop(fitting[0])
    return False


class Registered:
    """What slurmd has registered with slurmctld, from `scontrol --oneliner show node`."""

    def __init__(self, output: str, name: str) -> None:
        entry = slurm_output.records(output, "NodeName").get(name, {})
        gres = slurm_output.present(entry.get("Gres"))
        self.known = bool(entry)
        self.devices = slurm_output.gpu_count(gres)
        self.words = re.sub(r"\([^)]*\)", "", gres) or "none"
        # the reason stays when the fault is gone, the flag does not
        reason = re.search(r"gres/gpu.*?(?= \[|$)", entry.get("Reason", ""))
        flags = slurm_node_states.flags(entry.get("State", ""))
        self.refused = bool(reason) and bool(flags & slurm_node_states.INVALID)
        if reason and self.refused:
            self.words += f" ({reason.group(0)})"
        if not entry:
            self.words = "nothing (slurmctld does not answer)"


def sentence(expected: Mapping[str, Any], driver: Driver, slurmd: Registered) -> str:
    """What disagrees, with all three values; '' where nothing does."""
    miscounted = slurmd.known and slurmd.devices != expected["devices"]
    if not (_driver_differs(expected["cards"], driver) or slurmd.refused or miscounted):
        return ""
    shown = f"cluster.yml says {expected['words']}, the driver {driver.words}, slurmd {slurmd.words}"
    return f"its GPUs are not what they should be: {shown}"


def surplus(expected: Mapping[str, Any], driver: Driver) -> str:
    """A warning for GPUs that Slurm does not schedule; '' where there are none."""
    more = len(driver.cards or ()) - len(expected["cards"])
    return f"{more} of its GPUs are not in cluster.yml: no job gets them" if more > 0 else ""


class Comparison:
    """The comparison on this node; the driver is asked once, however often slurmd is."""

    def __init__(self, expected: Mapping[str, Any], name: str) -> None:
        self.expected = expected
        self.name = name
        self.driver: Driver | None = None

    def sentence(self, shown: str | None = None) -> str:
        """What disagrees; `shown` is slurmctld's record of the node, where that is known."""
        if not self.expected:
            return ""
        if shown is None:
            shown = slurm_client.ask(slurm_client.show("node", self.name), ANSWER_S).output
        if self.driver is None:
            self.driver = ask_driver()
        return sentence(self.expected, self.driver, Registered(shown, self.name))

    @property
    def lasting(self) -> bool:
        """Whether the driver differs: slurmd may still be about to register, a driver does not change by itself."""
        return self.driver is not None and _driver_differs(self.expected["cards"], self.driver)

    def warnings(self) -> list[str]:
        """Warnings for GPUs that Slurm does not schedule."""
        text = surplus(self.expected, self.driver) if self.driver else ""
        return [text] if text else []
