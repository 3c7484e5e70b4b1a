#!/usr/bin/env python3
"""Makes what the small internet's package index and its file host serve: index.py DIR gets DIR/HOST/PATH.

One package, `agentdemo`, for pip, npm, cargo, apt and git. The index and the files are on different hosts, as those of
the real ones are. Standard library only.
"""

import base64
import gzip
import hashlib
import io
import json
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

INDEX, FILES = "index.example.test", "files.example.test"
ROOT = Path(sys.argv[1])


def put(host, path, content):
    file = ROOT / host / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content if isinstance(content, bytes) else content.encode())


def tar(files, compress=True):
    """A tar archive of name -> text."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, text in files.items():
            member = tarfile.TarInfo(name)
            member.size, member.mode = len(text), 0o644
            archive.addfile(member, io.BytesIO(text.encode()))
    return gzip.compress(out.getvalue()) if compress else out.getvalue()


def pip():
    wheel = io.BytesIO()
    with zipfile.ZipFile(wheel, "w") as archive:
        info = "agentdemo-1.0.dist-info"
        archive.writestr("agentdemo.py", "GREETING = 'from the index'\n")
        archive.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: agentdemo\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"agentdemo.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    name, data = "agentdemo-1.0-py3-none-any.whl", wheel.getvalue()
    put(FILES, f"wheels/{name}", data)
    link = f"https://{FILES}/wheels/{name}#sha256={hashlib.sha256(data).hexdigest()}"
    put(INDEX, "simple/agentdemo/index.html", f'<!DOCTYPE html><html><body><a href="{link}">{name}</a></body></html>\n')


def npm():
    manifest = {"name": "agentdemo", "version": "1.0.0", "main": "index.js"}
    data = tar({"package/package.json": json.dumps(manifest), "package/index.js": "module.exports = 'from the index'\n"})
    put(FILES, "npm/agentdemo-1.0.0.tgz", data)
    dist = {
        "tarball": f"https://{FILES}/npm/agentdemo-1.0.0.tgz",
        "shasum": hashlib.sha1(data).hexdigest(),
        "integrity": "sha512-" + base64.b64encode(hashlib.sha512(data).digest()).decode(),
    }
    packument = {"name": "agentdemo", "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": {**manifest, "dist": dist}}}
    put(INDEX, "npm/agentdemo", json.dumps(packument))


def cargo():
    manifest = '[package]\nname = "agentdemo"\nversion = "1.0.0"\nedition = "2021"\n'
    data = tar({"agentdemo-1.0.0/Cargo.toml": manifest, "agentdemo-1.0.0/src/lib.rs": 'pub const GREETING: &str = "from the index";\n'})
    put(FILES, "crates/agentdemo-1.0.0.crate", data)
    put(INDEX, "cargo/config.json", json.dumps({"dl": f"https://{FILES}/crates/{{crate}}-{{version}}.crate"}))
    entry = {"name": "agentdemo", "vers": "1.0.0", "deps": [], "cksum": hashlib.sha256(data).hexdigest(), "features": {}, "yanked": False}
    put(INDEX, "cargo/ag/en/agentdemo", json.dumps(entry) + "\n")


def ar(members):
    out = b"!<arch>\n"
    for name, data in members.items():
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{100644:<8}{len(data):<10}`\n".encode() + data + b"\n" * (len(data) % 2)
    return out


def apt():
    control = "Package: agentdemo\nVersion: 1.0\nArchitecture: all\nMaintainer: tests <tests@example.test>\nDescription: a test\n"
    files = tar({"./usr/share/agentdemo": "from the index\n"})
    deb = ar({"debian-binary": b"2.0\n", "control.tar.gz": tar({"./control": control}), "data.tar.gz": files})
    put(INDEX, "debian/agentdemo_1.0_all.deb", deb)
    packages = f"{control}Filename: ./agentdemo_1.0_all.deb\nSize: {len(deb)}\nSHA256: {hashlib.sha256(deb).hexdigest()}\n\n"
    put(INDEX, "debian/Packages", packages)
    put(INDEX, "debian/Release", f"Suite: tests\nSHA256:\n {hashlib.sha256(packages.encode()).hexdigest()} {len(packages)} Packages\n")


def git():
    """A repository as files: what a plain web server serves (gitprotocol-http(5), the dumb one)."""

    def store(kind, body):
        data = f"{kind} {len(body)}\0".encode() + body
        name = hashlib.sha1(data).hexdigest()
        put(FILES, f"git/demo.git/objects/{name[:2]}/{name[2:]}", zlib.compress(data))
        return name

    blob = store("blob", b"from the index\n")
    tree = store("tree", b"100644 README\0" + bytes.fromhex(blob))
    who = "Tests <tests@example.test> 1700000000 +0000"
    commit = store("commit", f"tree {tree}\nauthor {who}\ncommitter {who}\n\nfirst\n".encode())
    put(FILES, "git/demo.git/HEAD", "ref: refs/heads/main\n")
    put(FILES, "git/demo.git/info/refs", f"{commit}\trefs/heads/main\n")
    put(FILES, "git/demo.git/objects/info/packs", "\n")


for make in [pip, npm, cargo, apt, git]:
    make()
