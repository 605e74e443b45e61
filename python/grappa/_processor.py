"""Checks that the compiled module can run on this machine, before it is loaded."""

import os
import sys

#: Instructions of x86-64-v3 that the compiled module uses: their names in /proc/cpuinfo, and in manuals.
INSTRUCTIONS = {
    "avx2": "AVX2",
    "bmi1": "BMI1",
    "bmi2": "BMI2",
    "fma": "FMA",
    "f16c": "F16C",
    "abm": "LZCNT",
    "movbe": "MOVBE",
}
#: Enough for the first processor: the kernel describes hundreds of them slowly.
HEAD_BYTES = 1 << 14


def require(platform: str = sys.platform, machine: str | None = None, cpuinfo: str = "/proc/cpuinfo") -> None:
    """Raises an ImportError that says what this machine lacks, if it lacks something."""
    # Windows has no `uname`.
    machine = machine or (os.uname().machine if hasattr(os, "uname") else "its processor")
    if platform != "linux" or machine != "x86_64":
        raise ImportError(f"grappa runs on Linux with an x86-64 processor, and this is {platform} on {machine}")
    lacking = [INSTRUCTIONS[flag] for flag in INSTRUCTIONS if flag not in _flags(cpuinfo)]
    if lacking:
        raise ImportError(
            f"this processor lacks {', '.join(lacking)}, which grappa uses. It runs on Intel Haswell (2013), AMD Zen (2017), and "
            "later processors; a virtual machine needs the type of its host's processor (QEMU: -cpu host)"
        )


def _flags(cpuinfo: str) -> set[str]:
    """The flags of the first processor. All that are needed, if the kernel does not tell."""
    try:
        with open(cpuinfo, "rb", buffering=0) as file:
            head = file.read(HEAD_BYTES).decode(errors="replace")
    except OSError:
        head = ""
    for line in head.splitlines():
        name, _, flags = line.partition(":")
        if name.strip() == "flags":
            return set(flags.split())
    return set(INSTRUCTIONS)
