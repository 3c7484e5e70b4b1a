#!/usr/bin/env python3
"""Writes an image archive by hand, without a registry or a builder.

    mkimage.py NAME ROOTFS.tar OUT.tar OUT.id [--env K=V]... [--user U] [--workdir D] [--cmd ARG...]

OUT.tar is an OCI layout and a docker archive at once: `docker load`, `podman load` and `ctr images import` take it.
OUT.id gets the image's id, by which a rig knows whether it has the image already.
"""

import argparse
import hashlib
import io
import json
import os
import shutil
import tarfile

MEDIA = "application/vnd.oci.image"


def digest_of_file(path: str) -> str:
    sha = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            sha.update(chunk)
    return sha.hexdigest()


def encode(value: object) -> bytes:
    return json.dumps(value, sort_keys=True).encode()


def describe(kind: str, digest: str, size: int, **more: object) -> dict:
    return {"mediaType": f"{MEDIA}.{kind}", "digest": f"sha256:{digest}", "size": size, **more}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("name")
    parser.add_argument("rootfs")
    parser.add_argument("out")
    parser.add_argument("id")
    parser.add_argument("--env", action="append", default=[])
    parser.add_argument("--user", default="")
    parser.add_argument("--workdir", default="/")
    parser.add_argument("--cmd", nargs=argparse.REMAINDER, default=[])
    args = parser.parse_args()

    layer, layer_size = digest_of_file(args.rootfs), os.path.getsize(args.rootfs)
    config = encode({
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": args.cmd, "Env": args.env, "User": args.user, "WorkingDir": args.workdir},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
        "history": [{"created_by": "hack/images"}],
    })
    config_digest = hashlib.sha256(config).hexdigest()
    manifest = encode({
        "schemaVersion": 2,
        "mediaType": f"{MEDIA}.manifest.v1+json",
        "config": describe("config.v1+json", config_digest, len(config)),
        "layers": [describe("layer.v1.tar", layer, layer_size)],
    })
    manifest_digest = hashlib.sha256(manifest).hexdigest()
    names = {"io.containerd.image.name": f"localhost/{args.name}:latest",
             "org.opencontainers.image.ref.name": "latest"}
    index = encode({
        "schemaVersion": 2,
        "manifests": [describe("manifest.v1+json", manifest_digest, len(manifest), annotations=names)],
    })
    docker = encode([{
        "Config": f"blobs/sha256/{config_digest}",
        "RepoTags": [f"{args.name}:latest"],
        "Layers": [f"blobs/sha256/{layer}"],
    }])

    # Under another name until complete: an interrupted build leaves no half image.
    partial = args.out + ".partial"
    with tarfile.open(partial, "w") as archive:
        def add(path: str, data: bytes) -> None:
            info = tarfile.TarInfo(path)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))

        add("oci-layout", encode({"imageLayoutVersion": "1.0.0"}))
        add("index.json", index)
        add("manifest.json", docker)
        add(f"blobs/sha256/{config_digest}", config)
        add(f"blobs/sha256/{manifest_digest}", manifest)
        info = tarfile.TarInfo(f"blobs/sha256/{layer}")
        info.size = layer_size
        with open(args.rootfs, "rb") as file:
            archive.addfile(info, file)
    shutil.move(partial, args.out)
    with open(args.id, "w", encoding="ascii") as file:
        file.write(f"sha256:{config_digest}\n")


if __name__ == "__main__":
    main()
