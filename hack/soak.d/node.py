"""What is on this node: processes, cgroups, mounts, files and network namespaces, and which of them are a container's."""

import os
import time

RUN = "/run/agentbox"
OVER = (FileNotFoundError, ProcessLookupError, PermissionError, OSError)


def read(path):
    """A file of /proc; empty when its process has gone."""
    try:
        with open(path, "rb") as file:
            return file.read().decode(errors="replace")
    except OVER:
        return ""


def pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def is_alive(pid):
    fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return bool(fields) and fields[0] not in "ZX"


def processes(words):
    """Processes with one of the words in their arguments or in their cgroups."""
    found = []
    for pid in pids():
        arguments = read(f"/proc/{pid}/cmdline").replace("\0", " ")
        cgroups = read(f"/proc/{pid}/cgroup")
        # The names of those that do not say more about themselves.
        mine = any(word in arguments or word in cgroups for word in words)
        if mine and pid != os.getpid() and "soak.py" not in arguments and is_alive(pid):
            found.append(f"process {pid}: {arguments or read(f'/proc/{pid}/comm').strip()}")
    return found


def of_runtime():
    """Every process of the runtime: the verbs, libcontainer's helpers, sidecars."""
    names = ("agentbox", "youki:[")
    return [
        pid
        for pid in pids()
        if read(f"/proc/{pid}/comm").startswith(names) and is_alive(pid)
    ]


def hierarchies():
    lines = [line.split() for line in read("/proc/self/mounts").splitlines()]
    return [fields[1] for fields in lines if fields[2] in ("cgroup", "cgroup2")]


def cgroups(word):
    found = []
    for top in hierarchies():
        for path, directories, _ in os.walk(top):
            found += [f"cgroup {path}/{name}" for name in directories if word in name]
    return found


def files(word, root):
    found = []
    for directory in (f"{RUN}/index", f"{RUN}/locks", root):
        try:
            names = os.listdir(directory)
        except OVER:
            continue
        found += [f"file {directory}/{name}" for name in names if word in name]
    return found


def mounts(word):
    lines = read("/proc/self/mountinfo").splitlines()
    return [f"mount {line}" for line in lines if word in line]


def everything():
    """What may not grow over the whole run, by kind."""
    namespaces = set()
    for pid in pids():
        try:
            namespaces.add(os.readlink(f"/proc/{pid}/ns/net"))
        except OVER:
            pass
    paths = []
    for path, directories, names in os.walk(RUN):
        paths += [os.path.join(path, name) for name in directories + names]
    return {
        "files of the runtime": set(paths),
        "mounts": {line.split(" ", 3)[3] for line in read("/proc/self/mountinfo").splitlines()},
        "network namespaces": namespaces,
        "processes of the runtime": set(of_runtime()),
    }


def left(id, root, words, patience=3.0):
    """What is left of a container. Those that lost their parent end by themselves, a moment later."""
    end = time.monotonic() + patience
    found = processes(words)
    while found and time.monotonic() < end:
        time.sleep(0.05)
        found = processes(words)
    return found + files(id, root) + cgroups(id) + mounts(id)
