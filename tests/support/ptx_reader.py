"""Runs PTX text thread by thread, for tests of our kernels' arithmetic where there is no GPU.

It knows the instructions that gpu_check/kernels uses, as the PTX ISA describes them, and nothing else. It
tests that a kernel computes what its comment claims; it tests nothing about a GPU.
"""

from __future__ import annotations

import operator
import re
import struct
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field

MASKS = {"u32": 2**32 - 1, "b32": 2**32 - 1, "u64": 2**64 - 1, "b64": 2**64 - 1}
COMPARE: dict[str, Callable[[float, float], bool]] = {
    "ge": operator.ge, "lt": operator.lt, "ne": operator.ne, "eq": operator.eq,
}  # fmt: skip
Value = int | float


def f32(value: float) -> float:
    """Rounded to single precision."""
    return float(struct.unpack("<f", struct.pack("<f", value))[0])


def bits(value: float) -> int:
    """A float's 32 bits."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def bf16(half: int) -> float:
    """The number in 16 bits of bf16."""
    return float(struct.unpack("<f", struct.pack("<I", half << 16))[0])


@dataclass
class Kernel:
    """One entry: its parameters and instructions, and where its labels are."""

    parameters: list[str]
    lines: list[str]
    labels: dict[str, int]


def kernels_of(text: str) -> dict[str, Kernel]:
    """Every entry of a PTX text."""
    plain = re.sub(r"//[^\n]*", "", text)
    kernels = {}
    for match in re.finditer(r"\.visible \.entry (\w+)\(([^)]*)\)\s*\{(.*?)\n\}", plain, re.DOTALL):
        name, declared, body = match.groups()
        lines: list[str] = []
        labels: dict[str, int] = {}
        for part in re.split(r";|(?<=:)\n", body):
            line = " ".join(part.split())
            while label := re.match(r"(\w+):\s*", line):
                labels[label.group(1)] = len(lines)
                line = line[label.end() :]
            if line and not line.startswith(".reg"):
                lines.append(line)
        kernels[name] = Kernel(re.findall(r"\.param \.\w+ (\w+)", declared), lines, labels)
    return kernels


Exchange = tuple[list[str], list[str], list[str], list[str]]


@dataclass
class Thread:
    """One thread's registers, and the memory that all share."""

    kernel: Kernel
    arguments: Mapping[str, Value]
    memory: bytearray
    regs: dict[str, Value] = field(default_factory=dict)

    def value(self, name: str) -> Value:
        """A register's, or a literal."""
        if name.startswith("%"):
            return self.regs[name]
        if name.startswith("0f"):
            return float(struct.unpack(">f", bytes.fromhex(name[2:]))[0])
        return int(name, 0)

    def whole(self, name: str) -> int:
        """A value that must be an integer."""
        value = self.value(name)
        assert isinstance(value, int), name
        return value

    def run(self) -> Generator[Exchange, None, None]:
        """To the end; at a matrix instruction the warp waits."""
        at = 0
        while at < len(self.kernel.lines):
            line = self.kernel.lines[at]
            at += 1
            guard, _, rest = line.partition(" ") if line.startswith("@") else ("", "", line)
            if guard and not self.regs[guard[1:]]:
                continue
            opcode, _, operands = rest.partition(" ")
            if opcode == "ret":
                return
            if opcode == "bra":
                at = self.kernel.labels[operands]
            elif opcode.startswith("mma."):
                groups = [group.split(", ") for group in re.findall(r"\{([^}]*)\}", operands)]
                yield groups[0], groups[1], groups[2], groups[3]
            else:
                self.step(opcode.split("."), operands)

    def step(self, words: list[str], text: str) -> None:
        """One instruction that concerns this thread alone."""
        type_name = words[-1]
        if words[0] in ("ld", "st", "atom"):
            self.memory_step(words, text)
            return
        to, *names = re.findall(r"\{[^}]*\}|[^,\s]+", text)
        if to.startswith("{"):
            low, high = to.strip("{}").split(", ")
            whole = self.whole(names[0])
            self.regs[low], self.regs[high] = whole & MASKS["u32"], whole >> 32
            return
        if words[0] == "mov" and type_name == "b32" and isinstance(self.value(names[0]), float):
            self.regs[to] = bits(self.value(names[0]))
            return
        values = [self.value(name) for name in names]
        self.regs[to] = self.result(words, type_name, values)

    def result(self, words: list[str], type_name: str, values: list[Value]) -> Value:
        """What an arithmetic instruction leaves."""
        if words[0] == "setp":
            return COMPARE[words[1]](values[0], values[1])
        if words[0] == "cvt" and words[-2] == "f32":
            return f32(float(values[0]))
        if type_name == "f32" or words[0] == "fma":
            a, *rest = values
            return {"mov": lambda: f32(a), "add": lambda: f32(a + rest[0]), "fma": lambda: f32(a * rest[0] + rest[1])}[
                words[0]
            ]()
        a, b, c = ([int(value) for value in values] + [0, 0])[:3]
        results = {
            "mov": a, "cvta": a, "cvt": a, "add": a + b, "sub": a - b, "mul": a * b, "mad": a * b + c, "and": a & b,
            "or": a | b, "xor": a ^ b, "shl": a << min(b, 63), "shr": a >> min(b, 63),
        }[words[0]]  # fmt: skip
        return results & (MASKS["u64"] if "wide" in words else MASKS[type_name])

    def memory_step(self, words: list[str], text: str) -> None:
        """ld, st, atom."""
        inside = re.search(r"\[([^\]+]+)(?:\+(\d+))?\]", text)
        assert inside
        if words[1] == "param":
            self.regs[text.partition(",")[0]] = self.arguments[inside.group(1)]
            return
        place = self.whole(inside.group(1)) + int(inside.group(2) or 0)
        code = {"u32": "I", "f32": "f", "u64": "Q"}[words[-1]]
        if words[0] == "atom":
            old = struct.unpack_from("<Q", self.memory, place)[0]
            operand = self.whole(text.rpartition(", ")[2])
            struct.pack_into("<Q", self.memory, place, old + operand if words[2] == "add" else min(old, operand))
            return
        names = re.findall(r"%\w+", text.replace(inside.group(0), ""))
        shape = f"<{len(names)}{code}"
        if words[0] == "ld":
            self.regs.update(zip(names, struct.unpack_from(shape, self.memory, place), strict=True))
        else:
            struct.pack_into(shape, self.memory, place, *(self.value(name) for name in names))


def launch(kernel: Kernel, memory: bytearray, blocks: int, threads: int, *arguments: Value) -> None:
    """Run a whole grid; memory addresses are places in `memory`."""
    values = dict(zip(kernel.parameters, arguments, strict=True))
    for block in range(blocks):
        for warp in range(0, threads, 32):
            lanes = [
                Thread(kernel, values, memory, {"%tid.x": thread, "%ntid.x": threads, "%ctaid.x": block,
                                               "%nctaid.x": blocks})
                for thread in range(warp, min(warp + 32, threads))
            ]  # fmt: skip
            run_warp(lanes)


def run_warp(lanes: list[Thread]) -> None:
    """All lanes to their end, matrix instructions together."""
    running = [lane.run() for lane in lanes]
    while True:
        waiting = [next(thread, None) for thread in running]
        if waiting[0] is None:
            assert not any(waiting), "lanes left a warp that multiplies"
            return
        multiply(lanes, waiting[0])


def multiply(lanes: list[Thread], names: Exchange) -> None:
    """mma.m16n8k16 with bf16: which lane holds which element is the PTX ISA's table."""
    d, a, b, c = names
    left = [[0.0] * 16 for _ in range(16)]
    right = [[0.0] * 8 for _ in range(16)]
    for number, lane in enumerate(lanes):
        group, inside = divmod(number, 4)
        for register, name in enumerate(a):
            for half in range(2):
                row, column = group + 8 * (register % 2), inside * 2 + half + 8 * (register // 2)
                left[row][column] = bf16(lane.whole(name) >> 16 * half & 0xFFFF)
        for register, name in enumerate(b):
            for half in range(2):
                right[inside * 2 + half + 8 * register][group] = bf16(lane.whole(name) >> 16 * half & 0xFFFF)
    for number, lane in enumerate(lanes):
        group, inside = divmod(number, 4)
        for register, (to, plus) in enumerate(zip(d, c, strict=True)):
            row, column = group + 8 * (register // 2), inside * 2 + register % 2
            product = sum(left[row][k] * right[k][column] for k in range(16))
            lane.regs[to] = f32(lane.value(plus) + product)
