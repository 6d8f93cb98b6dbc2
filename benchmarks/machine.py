"""What a measurement was made on."""

import os
import platform
import time
from pathlib import Path


def machine() -> dict[str, str]:
    """Return the processor, how many of them may be used, memory, kernel, Python, and the time, as text."""
    return {
        "processor": _first("/proc/cpuinfo", "model name") or platform.machine(),
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{int((_first('/proc/meminfo', 'MemTotal') or '0 kB').split()[0]) / 2**20:.0f} GiB",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "load before": f"{os.getloadavg()[0]:.2f}",
        "time": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


def _first(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
