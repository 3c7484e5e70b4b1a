#!/usr/bin/env python3
"""Pods under containerd, in a rig of hack/pods: what one costs, when thirty are ready, and what their companions take of memory.

Each round runs every handler once, one after the other, so that what else the machine does meets all of them. Processor time is
that of the whole rig: containerd, its shims, the runtime, the sidecars and this client, which are the same for all but the
runtime.
"""

import importlib.util
import re
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent
SPEC = importlib.util.spec_from_file_location("cri", HERE.parent / "matrix.d/cri.py")
cri = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(cri)

IMAGE = "localhost/test-musl:latest"
AT_ONCE = 30
HANDLERS = {
    "runc": ("runc", {}),
    "agentbox": ("agentbox", {}),
    "agentbox with a list": ("agentbox", {"dev.agentbox.network.allow": "api.example.test"}),
}


def processor() -> float:
    """Milliseconds that the rig's processes have used."""
    for place in ("/sys/fs/cgroup/cpuacct/cpuacct.usage", "/sys/fs/cgroup/cpu,cpuacct/cpuacct.usage"):
        if Path(place).exists():
            return int(Path(place).read_text()) / 1e6
    text = Path("/sys/fs/cgroup/cpu.stat").read_text()
    return int(dict(line.split() for line in text.splitlines())["usage_usec"]) / 1e3


def begin(name: str, handler: str, annotations: dict[str, str]) -> tuple[str, str]:
    """A pod with one container that sleeps; both run when this returns."""
    config = cri.sandbox(name, cri.POD, "/k8s", annotations)
    pod = cri.call("RunPodSandbox", cri.message((1, config), (2, handler)))[1].decode()
    context = cri.message((3, cri.message((1, cri.POD), (2, cri.CONTAINER), (3, cri.POD))))
    wanted = cri.message((1, cri.message((1, name), (2, 0))), (2, cri.message((1, IMAGE))),
                         (3, ["sleep", "600"]), (11, f"{name}.log"), (15, cri.message((2, context))))
    request = cri.message((1, pod), (2, wanted), (3, config))
    made = cri.call("CreateContainer", request)[1].decode()
    cri.call("StartContainer", cri.message((1, made)))
    return pod, made


def end(pod: str, container: str) -> None:
    """Removes both at once, without a grace that the sleeping program would wait out."""
    cri.call("StopContainer", cri.message((1, container), (2, 0)))
    cri.call("RemoveContainer", cri.message((1, container)))
    cri.call("StopPodSandbox", cri.message((1, pod)))
    cri.call("RemovePodSandbox", cri.message((1, pod)))


def show(figure: str, unit: str, found: dict[str, list[float]]) -> None:
    """The median and the range of each handler."""
    for name, values in found.items():
        middle, low, high = statistics.median(values), min(values), max(values)
        print(f"{figure}, {name}: {middle:.0f} {unit} [{low:.0f}, {high:.0f}], {len(values)} rounds", flush=True)


def companions() -> dict[str, float]:
    """The proportional set (smaps_rollup) of all sidecars and of all wardens, in KiB."""
    found = {"agentbox-sideca": 0.0, "agentbox-warden": 0.0}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            name = (process / "comm").read_text().strip()
            if name in found:
                rollup = (process / "smaps_rollup").read_text()
                found[name] += int(re.search(r"^Pss: +(\d+)", rollup, re.M).group(1))
        except OSError:
            pass  # it has ended meanwhile
    return found


def memory_of_members() -> None:
    """What one member more takes: pods with one container, against the same pods with the sandbox alone."""
    handler, annotations = HANDLERS["agentbox"]
    for count in (1, AT_ONCE):
        names = [f"memory-{count}-{i}" for i in range(count)]
        sandboxes = [cri.sandbox(name, cri.POD, "/k8s", annotations) for name in names]
        pods = [cri.call("RunPodSandbox", cri.message((1, config), (2, handler)))[1].decode() for config in sandboxes]
        alone = companions()
        for pod in pods:
            cri.call("StopPodSandbox", cri.message((1, pod)))
            cri.call("RemovePodSandbox", cri.message((1, pod)))
        whole = [begin(f"{name}-w", handler, annotations) for name in names]
        both = companions()
        for pod in whole:
            end(*pod)
        for name in alone:
            print(f"memory (Pss) of {name}, {count} pods: sandboxes alone {alone[name] / count:.0f} KiB a pod, "
                  f"with a member {both[name] / count:.0f} KiB a pod", flush=True)


def one_at_a_time(rounds: int) -> None:
    """Processor and wall time from RunPodSandbox to RemovePodSandbox."""
    used: dict[str, list[float]] = {name: [] for name in HANDLERS}
    took: dict[str, list[float]] = {name: [] for name in HANDLERS}
    for number in range(rounds + 1):
        for name, (handler, annotations) in HANDLERS.items():
            began, before = time.monotonic(), processor()
            end(*begin(f"one-{number}-{handler}-{len(annotations)}", handler, annotations))
            if number:  # the first warms up
                used[name].append(processor() - before)
                took[name].append((time.monotonic() - began) * 1e3)
    show("one pod, processor time of all", "ms", used)
    show("one pod, start to removal", "ms", took)


def at_once(rounds: int) -> None:
    """Until the last of thirty runs."""
    took: dict[str, list[float]] = {name: [] for name in HANDLERS}
    with ThreadPoolExecutor(AT_ONCE) as pool:
        for number in range(rounds):
            for name, (handler, annotations) in HANDLERS.items():
                names = [f"all-{number}-{handler}-{len(annotations)}-{i}" for i in range(AT_ONCE)]
                began = time.monotonic()
                pods = list(pool.map(lambda pod: begin(pod, handler, annotations), names))
                took[name].append((time.monotonic() - began) * 1e3)
                list(pool.map(lambda pod: end(*pod), pods))
    show(f"{AT_ONCE} pods at once, until all run", "ms", took)


if __name__ == "__main__":
    ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    memory_of_members()
    one_at_a_time(ROUNDS)
    at_once(max(2, ROUNDS // 3))
