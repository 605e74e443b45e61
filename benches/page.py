"""A section of a page in benches/record: question, command, date, machine, and what was found."""

import os
import platform
import sys
import time
from pathlib import Path


def machine(work):
    """The processor, its cores, memory, the file system of a folder, and the kernel."""
    fields = {}
    for path in ["/proc/cpuinfo", "/proc/meminfo"]:
        lines = (line.partition(":") for line in Path(path).read_text().splitlines())
        fields.update({key.strip(): value.strip() for key, _, value in lines})
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    disk = max((mount for mount in mounts if work.resolve().is_relative_to(mount[1])), key=lambda mount: len(mount[1]))[2]
    memory = int(fields["MemTotal"].split()[0]) / (1 << 20)
    return (
        f"{fields['model name']} (family {fields['cpu family']} model {fields['model']}), {os.cpu_count()} cores, {memory:.0f} GiB of memory, "
        f"{disk} on disk, Linux {platform.release()}"
    )


def table(header, rows):
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def finish(question, work, paragraphs, record):
    """Prints the section, and appends it to the page `record`, if any."""
    words = [f".../{Path(word).name}" if Path(word).is_absolute() else word for word in sys.argv[1:]]
    date, script = time.strftime("%Y-%m-%d"), Path(sys.argv[0]).name
    page = f"## {date}\n\n{question}\n\n    benches/{script} {' '.join(words)}\n\nDate: {date}\n\nMachine: {machine(work)}\n"
    page += "".join(f"\n{paragraph}\n" for paragraph in paragraphs)
    print(page)
    if record:
        with record.open("a") as file:
            file.write("\n" + page)
