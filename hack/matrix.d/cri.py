#!/usr/bin/env python3
"""A client of containerd's CRI service as small as the cases need: curl speaks HTTP/2, and protocol buffers are few.

    cri.py pod NAME HANDLER [node] [cgroup=PATH] [KEY=VALUE...]    start a pod sandbox ("node": with the node's network) in a
                                                        cgroup of the kubelet's; prints its id
    cri.py container POD NAME IMAGE [mount=SOURCE:PLACE[:ro]|image:PLACE:IMAGE...] [KEY=VALUE...] -- COMMAND...
                                                        create and start a container; prints its id
    cri.py exec ID COMMAND...                           run a command, print its output and exit code
    cri.py status ID                                    state and exit code
    cri.py pod-status POD                               ready or not ready
    cri.py update ID MEMORY_BYTES                       change the limit of memory
    cri.py stop ID | rm ID | stop-pod ID | rm-pod ID

Other KEY=VALUE are annotations. Field numbers are those of the CRI API, runtime/v1 (api.proto).
"""

import json
import os
import subprocess
import sys
import tempfile

SOCKET = "/run/containerd/containerd.sock"
STATES = {0: "created", 1: "running", 2: "exited", 3: "unknown"}
POD, CONTAINER, NODE = 0, 1, 2


def varint(number: int) -> bytes:
    """Base 128, least significant group first."""
    out = bytearray()
    while True:
        number, group = number >> 7, number & 0x7F
        out.append(group | (0x80 if number else 0))
        if not number:
            return bytes(out)


def message(*fields: tuple[int, object]) -> bytes:
    """(number, value) pairs; a dict is a map of strings, a list a repeated field."""
    out = b""
    for number, value in fields:
        match value:
            case bool() | int():
                out += varint(number << 3) + varint(int(value))
            case str() | bytes():
                raw = value.encode() if isinstance(value, str) else value
                out += varint(number << 3 | 2) + varint(len(raw)) + raw
            case dict():
                out += message(*((number, message((1, k), (2, v))) for k, v in value.items()))
            case list():
                out += message(*((number, item) for item in value))
    return out


def parse(data: bytes) -> dict[int, object]:
    """The last value of each field: integers, and bytes for everything that has a length."""
    fields, at = {}, 0

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 0:
            fields[key >> 3] = number()
        else:
            length = number()
            fields[key >> 3], at = data[at:at + length], at + length
    return fields


def call(method: str, request: bytes) -> dict[int, object]:
    """One unary gRPC call; its error ends the program."""
    with tempfile.TemporaryDirectory() as scratch:
        body, out, head = (os.path.join(scratch, n) for n in ("body", "out", "head"))
        with open(body, "wb") as file:
            file.write(b"\0" + len(request).to_bytes(4, "big") + request)
        subprocess.run(["curl", "-sS", "--max-time", "60", "--http2-prior-knowledge", "--unix-socket", SOCKET,
                        "-H", "content-type: application/grpc", "-H", "te: trailers", "--data-binary", f"@{body}",
                        "-D", head, "-o", out, f"http://cri/runtime.v1.RuntimeService/{method}"], check=True)
        with open(head, encoding="utf-8", errors="replace") as file:
            headers = {name: value.strip() for name, _, value in (line.partition(":") for line in file)}
        if headers.get("grpc-status") != "0":
            sys.exit(f"{method}: {headers.get('grpc-message', 'no answer')}")
        with open(out, "rb") as file:
            return parse(file.read()[5:])


def sandbox(name: str, network: int, cgroup: str, annotations: dict[str, str]) -> bytes:
    """PodSandboxConfig"""
    context = message((1, message((1, network), (2, CONTAINER), (3, POD))))
    return message((1, message((1, name), (2, name), (3, "default"), (4, 0))),
                   (2, name if network == POD else ""), (3, "/tmp"),
                   (7, annotations), (8, message((1, cgroup), (2, context))))


def annotations_of(words: list[str]) -> dict[str, str]:
    """KEY=VALUE..."""
    return dict(word.split("=", 1) for word in words)


def mount_of(text: str) -> bytes:
    """Mount"""
    source, place, *more = text.split(":")
    if source == "image":
        return message((1, place), (3, True), (9, message((1, ":".join(more)))))
    return message((1, place), (2, source), (3, more == ["ro"]))


def remember(pod: str, config: bytes, network: int) -> None:
    """A container's creation repeats its pod's configuration."""
    with open(f"/run/cri-{pod}", "w", encoding="ascii") as file:
        json.dump({"config": config.hex(), "network": network}, file)


def pod(name: str, handler: str, *words: str) -> None:
    """RunPodSandbox"""
    network = NODE if "node" in words else POD
    settings = annotations_of([w for w in words if w != "node"])
    cgroup = settings.pop("cgroup", "/k8s")
    config = sandbox(name, network, cgroup, settings)
    made = call("RunPodSandbox", message((1, config), (2, handler)))[1].decode()
    remember(made, config, network)
    print(made)


def container(pod_id: str, name: str, image: str, *words: str) -> None:
    """CreateContainer, StartContainer"""
    split = words.index("--")
    with open(f"/run/cri-{pod_id}", encoding="ascii") as file:
        known = json.load(file)
    options = words[:split]
    mounts = [mount_of(word.removeprefix("mount=")) for word in options if word.startswith("mount=")]
    settings = annotations_of([word for word in options if not word.startswith("mount=")])
    context = message((3, message((1, known["network"]), (2, CONTAINER), (3, POD))))
    config = message((1, message((1, name), (2, 0))), (2, message((1, image))), (3, list(words[split + 1:])),
                     (7, mounts), (10, settings), (11, f"{name}.log"), (15, message((2, context))))
    request = message((1, pod_id), (2, config), (3, bytes.fromhex(known["config"])))
    made = call("CreateContainer", request)[1].decode()
    call("StartContainer", message((1, made)))
    print(made)


def execute(target: str, *command: str) -> None:
    """ExecSync"""
    done = call("ExecSync", message((1, target), (2, list(command)), (3, 30)))
    sys.stdout.buffer.write(done.get(1, b"") + done.get(2, b""))
    print(f"exit code {done.get(3, 0)}")


def status(target: str) -> None:
    """ContainerStatus"""
    found = parse(call("ContainerStatus", message((1, target)))[1])
    print(STATES[found.get(3, 0)], found.get(7, 0))


def pod_status(target: str) -> None:
    """PodSandboxStatus"""
    found = parse(call("PodSandboxStatus", message((1, target)))[1])
    print("not ready" if found.get(3, 0) else "ready")


def main() -> None:
    """See the top of the file."""
    verb, *rest = sys.argv[1:]
    simple = {"rm": "RemoveContainer", "stop-pod": "StopPodSandbox", "rm-pod": "RemovePodSandbox"}
    match verb:
        case "pod":
            pod(*rest)
        case "container":
            container(*rest)
        case "exec":
            execute(*rest)
        case "status":
            status(*rest)
        case "pod-status":
            pod_status(*rest)
        case "update":
            call("UpdateContainerResources", message((1, rest[0]), (2, message((4, int(rest[1]))))))
        case "stop":
            call("StopContainer", message((1, rest[0]), (2, 2)))
        case _:
            call(simple[verb], message((1, rest[0])))


if __name__ == "__main__":
    main()
