"""Containers of Docker: the shim, the sidecar, the first process, the client and dockerd itself are killed."""

import os
import random
import signal
import subprocess
import time

import node

LIMIT = 60
RUNTIMES = ["agentbox-unconfined", "agentbox-standard"]


def docker(*arguments, limit=LIMIT):
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=limit, check=False)


def kill(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def with_arguments(*words):
    return [
        pid
        for pid in node.pids()
        if all(word in node.read(f"/proc/{pid}/cmdline") for word in words)
    ]


def of_container(id):
    """The processes that may be killed, by what they are."""
    init = docker("inspect", "-f", "{{.State.Pid}}", id).stdout.strip()
    sidecars = [p for p in node.of_runtime() if id in node.read(f"/proc/{p}/cgroup")]
    return {
        "shim": with_arguments("containerd-shim", id),
        "init": [int(init)] if init.isdigit() and int(init) else [],
        "sidecar": sidecars,
    }


def run(seed, index):
    """One container. Returns what went wrong."""
    dice = random.Random(f"{seed}-docker-{index}")
    name, runtime = f"soak-docker-{seed}-{index}", dice.choice(RUNTIMES)
    command = ["docker", "run", "-d", "--name", name, "--runtime", runtime, "test-musl", "sleep", "100"]
    client = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    if dice.random() < 0.3:
        time.sleep(dice.random() * 0.5)
        client.kill()
    client.wait(LIMIT)
    id = docker("inspect", "-f", "{{.Id}}", name).stdout.strip()
    if not id:
        return None
    which = dice.choice(["shim", "init", "sidecar", "exec"])
    if which == "exec":
        executing = subprocess.Popen(
            ["docker", "exec", name, "sleep", "5"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(dice.random() * 0.3)
        executing.kill()
        executing.wait(LIMIT)
    else:
        for pid in of_container(id)[which]:
            kill(pid)
    return removed(name, id, f"{runtime}, {which} killed")


def removed(name, id, what):
    """Docker may need to be asked again while it notices that a shim is gone."""
    answer = ""
    for _ in range(20):
        answer = docker("rm", "-f", name)
        if answer.returncode == 0 or "No such container" in answer.stderr:
            break
        time.sleep(0.5)
    else:
        return f"{name} ({what}): docker rm -f: {answer.stderr}"
    found = node.left(id, "/run/docker/runtime-runc/moby", [id], patience=10)
    return f"{name} ({what}): left:\n    " + "\n    ".join(found) if found else None


def kill_engine(seed):
    """dockerd and its containerd go while containers run; a new one must be able to remove them."""
    engines = [p for p in node.pids() if node.read(f"/proc/{p}/comm").strip() in ("dockerd", "containerd")]
    dockerd = [p for p in engines if node.read(f"/proc/{p}/comm").strip() == "dockerd"]
    with open(f"/proc/{dockerd[0]}/environ", "rb") as file:
        pairs = [pair.split(b"=", 1) for pair in file.read().split(b"\0") if b"=" in pair]
    environment = {key.decode(): value.decode() for key, value in pairs}
    names = [f"soak-engine-{seed}-{number}" for number in range(4)]
    ids = []
    for number, name in enumerate(names):
        started = docker("run", "-d", "--name", name, "--runtime", RUNTIMES[number % 2], "test-musl", "sleep", "100")
        ids.append(started.stdout.strip())
    half_made = subprocess.Popen(
        ["docker", "run", "-d", "--name", f"soak-half-{seed}", "--runtime", RUNTIMES[1], "test-musl", "sleep", "100"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    time.sleep(0.2)
    for pid in engines:
        kill(pid)
    half_made.wait(LIMIT)
    try:
        os.remove("/run/docker.pid")
    except FileNotFoundError:
        pass
    subprocess.Popen(["setsid", "dockerd"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(300):
        if docker("version").returncode == 0:
            break
        time.sleep(0.1)
    else:
        return ["dockerd did not come back"]
    problems = [removed(name, id, "engine killed") for name, id in zip(names, ids)]
    problems.append(removed_half(f"soak-half-{seed}"))
    return [problem for problem in problems if problem]


def removed_half(name):
    """A dockerd that was killed between the start of a task and its own note of it removes its container and forgets the
    task, whatever the runtime. When the shim goes as well, containerd has the runtime delete what is left."""
    id = docker("inspect", "-f", "{{.Id}}", name).stdout.strip()
    docker("rm", "-f", name)
    if not id:
        return None
    for pid in with_arguments("containerd-shim", id):
        kill(pid)
    found = node.left(id, "/run/docker/runtime-runc/moby", [id], patience=10)
    return f"{name} (half made, engine killed): left:\n    " + "\n    ".join(found) if found else None
