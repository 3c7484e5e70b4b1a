#!/usr/bin/env python3
"""A small internet for the tests: DNS, HTTP, HTTPS, a server that speaks first, and a witness.

Runs in a network namespace of its own and listens on every address of it. Each TCP connection, UDP datagram and DNS
question that arrives is one JSON line of the witness file: "nothing arrived" is what a wall's test looks at.
Standard library only.
"""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import socket
import socketserver
import ssl
import subprocess
import struct
import threading
import time

# Name -> addresses. A list of lists gives one after the other, answer by answer.
ZONE = {
    "api.example.test": ["198.51.100.10", "2001:db8::10"],
    "files.example.test": ["198.51.100.11", "2001:db8::11"],
    "index.example.test": ["198.51.100.13"],
    "other.example.test": ["198.51.100.12", "2001:db8::12"],
    "deep.a.example.test": ["198.51.100.11"],
    "example.test": ["198.51.100.12"],
    "private.example.test": ["10.9.9.9"],
    # The rig's own address on the way here, where tests put a company's proxy.
    "proxy.example.test": ["203.0.113.1"],
    "metadata.example.test": ["169.254.169.254"],
    "loopback.example.test": ["127.0.0.1"],
    "mapped.example.test": ["::ffff:127.0.0.1"],
    "cgnat.example.test": ["100.64.0.1"],
    "nat64.example.test": ["64:ff9b::7f00:1"],
    "gateway.example.test": ["172.17.0.1"],
    # Where clouds serve credentials: at a public address, and at one of a range that is private.
    "wire.example.test": ["168.63.129.16"],
    "ali.example.test": ["100.100.100.200"],
    # A neighbour of the rig's, and an address that the rig is given later.
    "lan.example.test": ["203.0.113.3"],
    "floating.example.test": ["203.0.113.77"],
    "rebind.example.test": [["198.51.100.10"], ["127.0.0.1"]],
    "nothing.example.test": [],
    # Services of a cluster, and names that its search list could make besides.
    "postgres.default.svc.cluster.test": ["10.9.9.9"],
    "postgres.prod.svc.cluster.test": ["10.9.9.9"],
    "redis.default.svc.cluster.test": ["10.9.9.9"],
    "web.prod.svc.cluster.test": ["10.9.9.9"],
}

WITNESS = threading.Lock()
# What hosts serve besides an echo: HOST/PATH below it (index.py).
FILES = None


def witness(log, **what):
    with WITNESS, open(log, "a") as file:
        file.write(json.dumps({"at": time.time(), **what}) + "\n")


class Dns:
    def __init__(self, log):
        self.log = log
        self.asked = {}

    def answer(self, query):
        if len(query) < 12:
            return None
        ident, _, count = struct.unpack(">HHH", query[:6])
        at, labels = 12, []
        while query[at]:
            labels.append(query[at + 1 : at + 1 + query[at]].decode("ascii", "replace").lower())
            at += 1 + query[at]
        kind = struct.unpack(">H", query[at + 1 : at + 3])[0]
        question = query[12 : at + 5]
        name = ".".join(labels)
        witness(self.log, what="dns", name=name, kind=kind)
        found = ZONE.get(name)
        if found is None:
            return struct.pack(">HHHHHH", ident, 0x8183, 1, 0, 0, 0) + question
        if found and isinstance(found[0], list):
            turn = self.asked.get(name, 0)
            if kind == 1:
                self.asked[name] = turn + 1
            found = found[turn % len(found)]
        records = b""
        number = 0
        for address in found:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            if (kind, family) not in ((1, socket.AF_INET), (28, socket.AF_INET6)):
                continue
            data = socket.inet_pton(family, address)
            records += b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 1, len(data)) + data
            number += 1
        return struct.pack(">HHHHHH", ident, 0x8180, 1, number, 0, 0) + question + records

    def serve(self):
        # One socket for each address: the answer must come from where the question went.
        sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sock.bind(("198.51.100.53", 53))
        while True:
            query, sender = sock.recvfrom(4096)
            try:
                answer = self.answer(query)
            except (IndexError, struct.error):
                continue
            if answer:
                sock.sendto(answer, sender)


class Server(socketserver.ThreadingTCPServer):
    address_family = socket.AF_INET6
    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 1024


def handler(log, port, talk):
    class Handler(socketserver.BaseRequestHandler):
        def handle(self):
            local = self.request.getsockname()[0].replace("::ffff:", "")
            witness(log, what="tcp", port=port, to=local)
            self.request.settimeout(60)
            try:
                talk(self.request, log, local)
            except (OSError, ValueError):
                pass

    return Handler


def read_head(sock, data=b""):
    while b"\r\n\r\n" not in data and len(data) < 65536:
        more = sock.recv(65536)
        if not more:
            return None, b""
        data += more
    head, _, rest = data.partition(b"\r\n\r\n")
    return head.decode("latin-1"), rest


def served(host, path):
    """The file that a host has at a path; None where there is none."""
    place = (FILES / (host or "").split(":")[0] / path.split("?")[0].lstrip("/")).resolve()
    place = place / "index.html" if place.is_dir() else place
    return place.read_bytes() if place.is_relative_to(FILES) and place.is_file() else None


def smart(fields, method, path, body):
    """git's own answer by its smart protocol, to every user: the content type and the body (git-http-backend(1))."""
    place, _, query = path.partition("?")
    variables = {
        "GIT_PROJECT_ROOT": str(FILES / fields["host"].split(":")[0]),
        "GIT_HTTP_EXPORT_ALL": "1",
        "GIT_CONFIG_COUNT": "1",
        "GIT_CONFIG_KEY_0": "safe.directory",
        "GIT_CONFIG_VALUE_0": "*",
        "PATH": os.environ["PATH"],
        "REMOTE_USER": "anybody",
        "REQUEST_METHOD": method,
        "PATH_INFO": place,
        "QUERY_STRING": query,
        "CONTENT_TYPE": fields.get("content-type", ""),
        "CONTENT_LENGTH": str(len(body)),
        "HTTP_CONTENT_ENCODING": fields.get("content-encoding", ""),
        "HTTP_GIT_PROTOCOL": fields.get("git-protocol", ""),
    }
    done = subprocess.run(["git", "http-backend"], env=variables, input=body, stdout=subprocess.PIPE, check=True)
    head, _, answer = done.stdout.partition(b"\r\n\r\n")
    kind = next(line for line in head.decode().split("\r\n") if line.lower().startswith("content-type:"))
    return kind.split(":", 1)[1].strip(), answer


def frames(sock, log, early):
    """A WebSocket (RFC 6455): each message comes back; `end` is answered by an end."""
    data = bytearray(early)

    def take(count):
        while len(data) < count:
            more = sock.recv(65536)
            if not more:
                raise ValueError
            data.extend(more)
        taken = bytes(data[:count])
        del data[:count]
        return taken

    while True:
        first, second = take(2)
        length = second & 127
        if length > 125:
            length = int.from_bytes(take({126: 2, 127: 8}[length]), "big")
        mask, kind = take(4), first & 15
        text = bytes(byte ^ mask[at % 4] for at, byte in enumerate(take(length)))
        witness(log, what="frame", kind=kind, text=text[:200].decode("latin-1"))
        size = bytes([length]) if length < 126 else b"\x7e" + length.to_bytes(2, "big")
        sock.sendall(bytes([0x80 | kind]) + size + text)
        if kind == 8 or text == b"end":
            return


def switch(sock, log, path, fields, early):
    """Agrees to a WebSocket: rightly, without the proof, or to another protocol. What comes then is for the witness alone."""
    key = fields.get("sec-websocket-key", "").encode() + b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    proof = base64.b64encode(hashlib.sha1(key).digest()).decode()
    other = {"unproven": ("websocket", "x" + proof), "h2c": ("h2c", proof)}
    protocol, proof = other.get(path.rsplit("-", 1)[-1], ("websocket", proof))
    sock.sendall(
        ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: %s\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: %s\r\n\r\n" % (protocol, proof)).encode()
        # A host may speak at once.
        + b"\x81\x05hello"
    )
    if path.endswith("/socket"):
        return frames(sock, log, early)
    while early or (early := sock.recv(65536)):
        witness(log, what="switched", text=early[:200].decode("latin-1"))
        early = b""


def rpc(sock, log, method, path, kind, body):
    """A server of MCP that looks closely at nothing: of two fields of one name it takes the last, and it asks for no id."""
    tools = {"tools": [{"name": "delete_all"}, {"name": "search_code"}]}
    answers = []
    if method == "POST":
        said = json.loads(body)
        for one in said if isinstance(said, list) else [said]:
            name = one.get("params", {}).get("name")
            witness(log, what="mcp", path=path, asked=one.get("method"), name=name, kind=kind)
            answers.append({"jsonrpc": "2.0", "id": one.get("id"), "result": tools if one.get("method") == "tools/list" else {"did": name}})
    text = json.dumps(answers if len(answers) > 1 else answers[0] if answers else {"jsonrpc": "2.0", "id": 9, "result": tools})
    if method == "POST" and "/stream/" not in path:
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(text)
        return sock.sendall((head + text).encode())
    sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
    events = (": open\r\n\r\nid: 1\r\nevent: message\r\ndata: %s\r\n\r\n" % text).encode()
    for at in range(0, len(events), 7):
        piece = events[at : at + 7]
        sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
        time.sleep(0.001)
    sock.sendall(b"0\r\n\r\n")


def http(sock, log, local):
    """Answers requests until the client is done: with a file, for /bytes/N with N bytes, and else with an echo of what was asked."""
    early = b""
    while True:
        head, rest = read_head(sock, early)
        if head is None:
            return
        lines = head.split("\r\n")
        method, path, _ = lines[0].split(" ", 2)
        fields = {k.strip().lower(): v.strip() for k, v in (line.split(":", 1) for line in lines[1:])}
        # As servers do that know of no body here: what follows is the next request.
        lax = path.startswith("/lax")
        length = 0 if lax else int(fields.get("content-length", "0"))
        while len(rest) < length:
            more = sock.recv(65536)
            if not more:
                return
            rest += more
        early, rest = rest[length:], rest[:length]
        more = {name: fields[name] for name in ("authorization", "x-file", "x-model") if name in fields}
        witness(log, what="http", method=method, path=path, host=fields.get("host"), body=len(rest), **more)
        if path.split("/")[-1].split("-")[0] == "socket" and "upgrade" in fields:
            return switch(sock, log, path, fields, early)
        if path.endswith("/mcp"):
            if "/slow/" in path:
                time.sleep(5)
            rpc(sock, log, method, path, fields.get("content-type"), rest)
            continue
        if path.endswith("/events"):
            # An answer that goes on: the second event comes four seconds after the first.
            sock.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n")
            time.sleep(4)
            sock.sendall(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
            continue
        if path.endswith("/echo"):
            # All that was sent comes back: in a field, in the body in pieces, and in base64.
            text = json.dumps(fields)
            body = (text + base64.b64encode(text.encode()).decode() + "\n").encode()
            back = "X-Echo: %s\r\n" % fields.get("authorization", "none")
            sock.sendall(("HTTP/1.1 200 %s\r\n%sTransfer-Encoding: chunked\r\n\r\n" % (fields.get("authorization", "none"), back)).encode())
            for at in range(0, len(body), 7):
                piece = body[at : at + 7]
                sock.sendall(b"%x\r\n%s\r\n" % (len(piece), piece))
                time.sleep(0.001)
            sock.sendall(b"0\r\n\r\n")
            continue
        status, kind = "200 OK", "application/json"
        file = served(fields.get("host"), path)
        if "/smart/" in path:
            kind, body = smart(fields, method, path, rest)
        elif file is not None:
            body, kind = file, "text/html" if path.endswith("/") else "application/octet-stream"
        elif fields.get("host", "").split(":")[0] in ("files.example.test", "index.example.test") and path.count("/") > 1:
            status, body = "404 Not Found", b""
        elif path.startswith("/bytes/"):
            body = b"x" * int(path.split("/")[2])
        else:
            body = json.dumps({"method": method, "path": path, "host": fields.get("host"), "at": local}).encode() + b"\n"
        close = fields.get("connection", "").lower() == "close"
        answer = "HTTP/1.1 %s\r\nContent-Length: %d\r\nContent-Type: %s\r\n" % (status, len(body), kind)
        body = b"" if method == "HEAD" else body
        sock.sendall((answer + ("Connection: close\r\n" if close else "") + "\r\n").encode() + body)
        if close:
            return


def https(context):
    def talk(sock, log, local):
        with context.wrap_socket(sock, server_side=True) as secure:
            http(secure, log, local)

    return talk


def banner(sock, log, local):
    """A server that speaks first, as ssh and many databases do."""
    sock.sendall(b"SSH-2.0-example\r\n")
    while True:
        data = sock.recv(65536)
        if not data:
            return
        witness(log, what="bytes", port=22, length=len(data))
        sock.sendall(data)


def udp(log, port):
    sock = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
    sock.bind(("::", port))
    while True:
        data, _ = sock.recvfrom(65536)
        witness(log, what="udp", port=port, length=len(data))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--witness", required=True)
    parser.add_argument("--cert", required=True)
    parser.add_argument("--key", required=True)
    parser.add_argument("--files", required=True, type=pathlib.Path)
    arguments = parser.parse_args()
    global FILES
    FILES = arguments.files.resolve()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(arguments.cert, arguments.key)
    # Asked for each greeting of a connection, and each has a name.
    context.sni_callback = lambda sock, name, _: witness(arguments.witness, what="sni", name=name)
    ports = {80: http, 443: https(context), 8443: https(context), 22: banner, 5432: banner, 8080: http, 25: banner}
    for port, talk in ports.items():
        server = Server(("::", port), handler(arguments.witness, port, talk))
        threading.Thread(target=server.serve_forever, daemon=True).start()
    for port in (443, 5353, 123):
        threading.Thread(target=udp, args=(arguments.witness, port), daemon=True).start()
    print("ready", flush=True)
    Dns(arguments.witness).serve()


if __name__ == "__main__":
    main()
