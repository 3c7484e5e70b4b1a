"""The network wall against the direct path, tinyproxy and squid: two network namespaces, a server in one of them."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from stats import difference, goal, ratio, table

NAME, ADDRESS, PORT = "server.example.test", "198.51.100.10", "5000"
# Engines name a bundle's directory by the container's id.
ID = "b" * 64
STREAM_BYTES = {False: 1_500_000_000, True: 400_000_000}
SECONDS = {False: 1.0, True: 0.5}
ROUNDS = {False: 8, True: 3}
AT_ONCE = "16"
HELD = 1000
PORTS = {"net.ipv4.ip_local_port_range": "1024 65535", "net.ipv4.tcp_tw_reuse": "1"}
IDLE_LIMIT, HELD_LIMIT = 6144, 24576
# Seconds until a server listens, and until a command must have ended.
READY, LIMIT = 20, 90


@dataclass(frozen=True)
class Way:
    """How the client's bytes reach the server."""

    name: str
    # In the container or in the engine's namespace.
    inside: bool
    host: str
    # `-`, ADDRESS:PORT for a tunnel by CONNECT, http:ADDRESS:PORT for one that forwards requests.
    proxy: str
    port: str = PORT


DIRECT = Way("direct", False, ADDRESS, "-")
TRANSPARENT = Way("agentbox, transparent", True, NAME, "-")
CONNECT = Way("agentbox, CONNECT", True, NAME, "127.0.0.1:3128")
TINYPROXY = Way("tinyproxy, CONNECT", False, ADDRESS, "127.0.0.1:8888")
SQUID = Way("squid, CONNECT", False, ADDRESS, "127.0.0.1:8889")
TINYPROXY_FORWARDS = Way("tinyproxy, forwarding", False, ADDRESS, "http:127.0.0.1:8888")
SQUID_FORWARDS = Way("squid, forwarding", False, ADDRESS, "http:127.0.0.1:8889")
# Fifty lines of C that decide nothing: what any process in between costs.
RELAY = Way("a relay without a wall", False, "127.0.0.1", "-", "8890")
WAYS = [DIRECT, TRANSPARENT, CONNECT, TINYPROXY, SQUID, RELAY]
TUNNELS, FORWARDS = [TINYPROXY, SQUID], [TINYPROXY_FORWARDS, SQUID_FORWARDS]


class Network:
    """`bench` is bench.Bench; `proxies` holds what Debian's packages were unpacked to."""

    def __init__(self, bench, proxies):
        self.bench, self.proxies = bench, proxies
        self.quick = bench.args.quick
        self.net = bench.state / "net"
        self.dir = bench.state / "network"
        self.children = []
        self.number = 0

    def run(self):
        shutil.rmtree(self.dir, ignore_errors=True)
        self.dir.mkdir(parents=True)
        try:
            self.lay_cables()
            self.serve()
            self.bundle()
            self.figures()
        finally:
            for child in self.children:
                child.send_signal(signal.SIGKILL)
                child.wait()

    # --- the internet -------------------------------------------------------------------------------------------

    def lay_cables(self):
        """The engine's namespace and the server's, whose address is behind the cable and not on it."""
        for line in f"""
            netns add engine
            netns add world
            link add cable netns engine type veth peer name cable netns world
            -n engine link set lo up
            -n world link set lo up
            -n engine addr add 203.0.113.1/24 dev cable
            -n world addr add 203.0.113.2/24 dev cable
            -n world addr add {ADDRESS}/32 dev lo
            -n engine link set cable up
            -n world link set cable up
            -n engine route add default via 203.0.113.2
        """.strip().splitlines():
            subprocess.run(["ip", *line.split()], check=True, timeout=LIMIT)
        # Closed connections keep their port for a minute: thousands a second would use them up.
        for key, value in PORTS.items():
            file = f"/proc/sys/{key.replace('.', '/')}"
            subprocess.run(["ip", "netns", "exec", "engine", "sh", "-c", f"echo '{value}' >{file}"], check=True, timeout=LIMIT)

    def serve(self):
        self.background("world", [self.net, "server", PORT], (ADDRESS, PORT))
        allow = "\n".join(["User nobody", "Group nogroup", "Port 8888", "Listen 127.0.0.1", "Timeout 600", "MaxClients 1200",
                           f"ConnectPort {PORT}", "LogLevel Critical", f'PidFile "{self.dir}/tinyproxy.pid"'])
        (self.dir / "tinyproxy.conf").write_text(allow + "\n")
        self.background("engine", [self.proxies / "usr/bin/tinyproxy", "-d", "-c", self.dir / "tinyproxy.conf"], ("127.0.0.1", "8888"))
        share = self.proxies / "usr/share/squid"
        (self.dir / "squid.conf").write_text(f"""
            http_port 127.0.0.1:8889
            acl to_server port {PORT}
            http_access allow to_server
            http_access deny all
            cache deny all
            cache_mem 8 MB
            access_log none
            cache_log /dev/null
            cache_store_log none
            pid_filename none
            netdb_filename none
            pinger_enable off
            unlinkd_program {self.proxies}/usr/lib/squid/unlinkd
            logfile_daemon {self.proxies}/usr/lib/squid/log_file_daemon
            coredump_dir {self.dir}
            mime_table {share}/mime.conf
            icon_directory {share}/icons
            error_directory {share}-langpack/en
            max_filedescriptors 8192
            visible_hostname bench
        """)
        self.background("engine", [self.proxies / "usr/sbin/squid", "-N", "-f", self.dir / "squid.conf"], ("127.0.0.1", "8889"))
        self.background("engine", [self.net, "relay", RELAY.port, ADDRESS, PORT], ("127.0.0.1", RELAY.port))

    def background(self, namespace, command, listens):
        environment = {**os.environ, "LD_LIBRARY_PATH": f"{self.proxies}/usr/lib/x86_64-linux-gnu"}
        log = open(self.dir / f"{Path(command[0]).name}.log", "wb")
        raise_files = ["prlimit", "--nofile=8192:8192"]
        child = subprocess.Popen(["ip", "netns", "exec", namespace, *raise_files, *map(str, command)],
                                 stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment)
        self.children.append(child)
        end = time.monotonic() + READY
        address, port = listens
        probe = f"exec 3<>/dev/tcp/{address}/{port}"
        while subprocess.run(["ip", "netns", "exec", "engine", "bash", "-c", probe], stderr=subprocess.DEVNULL, timeout=LIMIT).returncode:
            if child.poll() is not None or time.monotonic() > end:
                self.bench.cannot(f"{command[0]} does not listen: {Path(log.name).read_text()[-500:]}")
            time.sleep(0.05)

    def bundle(self):
        """Docker's, in the engine's namespace, with its resolver and hosts, and a policy that names the server."""
        spec = json.loads((self.bench.state / "bundles/sleep/config.json").read_text())
        # Where an engine keeps them, by the container's id: names of other files do not count.
        engines = Path("/run/docker/containers") / ID
        engines.mkdir(parents=True, exist_ok=True)
        (engines / "hosts").write_text(f"127.0.0.1 localhost\n{ADDRESS} {NAME}\n")
        (engines / "resolv.conf").write_text("nameserver 203.0.113.2\n")
        for name in ["hosts", "resolv.conf"]:
            spec["mounts"].append({"destination": f"/etc/{name}", "type": "bind", "source": str(engines / name),
                                   "options": ["rbind", "rprivate"]})
        for namespace in spec["linux"]["namespaces"]:
            if namespace["type"] == "network":
                namespace["path"] = "/run/netns/engine"
        # More than a node allows by default: the node's own file says so.
        budget = {"connections": "4000", "connections-per-minute": "1000000", "upload": "64GiB"}
        (self.dir / "node.toml").write_text(f'policy-dir = "{self.dir}"\nceiling = "bench"\n')
        ceiling = [f"{key} = {json.dumps(value) if value.endswith('B') else value}" for key, value in budget.items()]
        (self.dir / "bench.toml").write_text("\n".join(['base = "permissive"', "[network]", *ceiling]) + "\n")
        self.runtime = (*self.bench.ours.runtime[:3], "--config", str(self.dir / "node.toml"))
        spec["annotations"] = {"dev.agentbox.network.allow": f"{NAME}:{PORT}",
                               **{f"dev.agentbox.network.{key}": value for key, value in budget.items()}}
        spec["linux"]["sysctl"] = PORTS
        spec["process"]["rlimits"] = [{"type": "RLIMIT_NOFILE", "soft": 8192, "hard": 8192}]
        self.spec = spec

    # --- the client ---------------------------------------------------------------------------------------------

    def command(self, way, kind, *rest):
        """The client's command line; in the container by `run`, outside in the engine's namespace."""
        words = [kind, way.host, way.port, way.proxy, *map(str, rest)]
        if not way.inside:
            return ["ip", "netns", "exec", "engine", str(self.net), *words]
        self.number += 1
        return [*self.runtime, "run", "--bundle", str(self.bundle_of(["/bin/net", *words])), f"net-{self.number}"]

    def bundle_of(self, args):
        directory = self.dir / ID
        directory.mkdir(exist_ok=True)
        self.spec["process"]["args"] = args
        (directory / "config.json").write_text(json.dumps(self.spec))
        return directory

    def measure(self, way, kind, *rest):
        done = subprocess.run(self.command(way, kind, *rest), stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT)
        found = re.search(rf"^net {kind} ([\d.]+) (\d+) ([\d.]+)$", done.stdout.decode(), re.M)
        if not found:
            self.bench.cannot(f"{way.name}, {kind}: {done.stdout.decode()}{done.stderr.decode()}")
        value, failed, middle = float(found[1]), int(found[2]), float(found[3])
        if failed:
            self.bench.cannot(f"{way.name}, {kind}: {failed} connections failed")
        return value, middle

    def samples(self, ways, kind, *rest):
        """Each way once a round, forwards and backwards in turn; way -> (value, median microseconds) in order."""
        results = {way: [] for way in ways}
        for number in range(ROUNDS[self.quick]):
            for way in ways if number % 2 == 0 else reversed(ways):
                results[way].append(self.measure(way, kind, *rest))
        return results

    # --- what is printed ----------------------------------------------------------------------------------------

    def figures(self):
        seconds = SECONDS[self.quick]
        values = lambda all: {way: [value for value, _ in measured] for way, measured in all.items()}
        stream = values(self.samples(WAYS, "stream", STREAM_BYTES[self.quick]))
        new = values(self.samples(WAYS + FORWARDS, "new", seconds, AT_ONCE))
        kept = values(self.samples(WAYS + FORWARDS, "kept", seconds, AT_ONCE))
        single = {way: [m / 1000 for _, m in all] for way, all in self.samples(WAYS + FORWARDS, "kept", seconds, "1").items()}
        show = lambda values, way, digits, unit=1: f"{median(values[way]) / unit:.{digits}f}" if way in values else ""
        rows = [
            [way.name, show(stream, way, 2, 1e9), show(new, way, 0), show(kept, way, 0), show(single, way, 3)] for way in WAYS + FORWARDS
        ]
        head = ["Median", "Stream, GB/s", "New/s", "Kept/s", "Single, ms"]
        best = lambda values, ways: max(ways, key=lambda way: median(values[way]))
        bars, more = [], []
        # A tunnel takes a round trip more than what is forwarded, and tinyproxy has threads on both cores. The sidecar makes
        # 22 system calls for a tunnel, all of them of its two sockets.
        judges = {TRANSPARENT: self.bench.bar, CONNECT: goal}
        for ours in [TRANSPARENT, CONNECT]:
            short = ours.name.split(", ")[1]
            tunnel, forwards, any_way = best(kept, TUNNELS), best(kept, FORWARDS), best(new, TUNNELS + FORWARDS)
            bars += [
                # What a relay costs at all depends on the processor; what the wall adds to it is ours.
                self.at_least(f"stream, {short} / {RELAY.name}", stream[ours], stream[RELAY], 0.85),
                self.at_least(f"stream, {short} / squid", stream[ours], stream[SQUID], 1.3),
                self.at_least(f"new connections, {short} / {any_way.name}", new[ours], new[any_way], 1.2, judges[ours]),
                self.at_least(f"kept, {short} / {forwards.name}", kept[ours], kept[forwards], 2.0),
                self.added(short, single, ours),
            ]
            more += [
                [f"kept, {short} / {tunnel.name}", ratio(kept[ours], kept[tunnel]).text()],
                [f"latency added to direct, {short}, ms", difference(single[ours], single[DIRECT]).text(3)],
            ]
            more.append([f"stream, {short} / direct", ratio(stream[ours], stream[DIRECT]).text()])
            for what, measured in [("new connections", new), ("kept", kept)]:
                more.append([f"{what}, {short} / {RELAY.name}", ratio(measured[ours], measured[RELAY]).text()])
        more.append([f"latency added to direct, {TINYPROXY.name}, ms", difference(single[TINYPROXY], single[DIRECT]).text(3)])
        self.bench.section(
            f"network ({ROUNDS[self.quick]} rounds)",
            table(["Ratio", "Value [95 %]", "Bar", ""], bars),
            detail=[table(head, rows), self.held(), table(["Besides", "Value [95 %]"], more), self.share()],
        )

    def at_least(self, name, ours, theirs, limit, judge=None):
        """A bar from below: judged the other way round, so that one verdict serves both."""
        row = (judge or self.bench.bar)(name, ratio(theirs, ours), 1 / limit)
        return [name, self.bench.compare(name, ratio(ours, theirs), higher=True).text(), f">= {limit}", row[3]]

    def added(self, short, single, ours):
        theirs = TINYPROXY_FORWARDS
        more, limit = difference(single[ours], single[DIRECT]), difference(single[theirs], single[DIRECT])
        outcome = self.bench.bar(f"latency added, {short}: ms", difference(single[ours], single[theirs]), 0.0)[3]
        return [f"latency added, {short}, ms", more.text(3), f"<= {limit.value:.3f}", outcome]

    def held(self):
        """A thousand connections open at once, each used twice, and what the sidecar takes for them."""
        before = set(self.bench.sidecars())
        child = subprocess.Popen(self.command(TRANSPARENT, "hold", HELD), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        first = child.stdout.readline().decode()
        sidecar, = set(self.bench.sidecars()) - before
        with_all = self.bench.resident(sidecar)
        said, errors = child.communicate(b"go\n", timeout=LIMIT)
        found = re.search(r"^net hold (\d+) (\d+) ", said.decode(), re.M)
        if not found:
            self.bench.cannot(f"{HELD} connections: {first}{said.decode()}{errors.decode()}")
        failed = 2 * HELD - int(found[1])
        idle = self.idle()
        rows = [
            self.limit(f"{HELD} connections: failed", failed, 0),
            self.limit("sidecar, idle, KiB", idle, IDLE_LIMIT),
            self.limit(f"sidecar, {HELD} connections, KiB", with_all, HELD_LIMIT),
        ]
        return table(["One run", "Measured", "Bar", ""], rows)

    def limit(self, name, measured, limit):
        if measured > limit:
            self.bench.failed.append(f"{name}: {measured}, bar {limit}")
        return [name, measured, f"<= {limit}", "FAILED" if measured > limit else "met"]

    def idle(self):
        before = set(self.bench.sidecars())
        commands = self.verbs(self.runtime, ["/bin/sleep", "600"], "idle")
        self.bench.steps(*commands[:2])
        sidecar, = set(self.bench.sidecars()) - before
        resident = self.bench.resident(sidecar)
        self.bench.end(int(Path("/run/bench.pid").read_text()))
        self.bench.steps(commands[3])
        return resident

    def verbs(self, runtime, args, name):
        bundle = self.bundle_of(args)
        return [
            [*runtime, "create", "--bundle", bundle, "--pid-file", "/run/bench.pid", name],
            [*runtime, "start", name],
            ["@ended", "/run/bench.pid"],
            [*runtime, "delete", name],
        ]

    def share(self):
        """What the allowlist adds to `create` and `start`: against the same bundle and policy without a rule."""
        with_it, without = [], []
        rules = self.spec["annotations"].pop("dev.agentbox.network.allow")
        closed = dict(self.spec["annotations"])
        for number in range(8 if self.quick else 30):
            for samples, annotations in [(with_it, {"dev.agentbox.network.allow": rules, **closed}), (without, {})]:
                self.spec["annotations"] = annotations
                taken = self.bench.steps(*self.verbs(self.runtime, ["/bin/true"], f"share-{number}"))
                samples.append(taken[0].milliseconds + taken[1].milliseconds)
        cost, whole = difference(with_it, without), median(with_it)
        row = ["with a rule, minus without", cost.text(), f"{whole:.1f}", f"{100 * cost.value / whole:.0f} %"]
        return table(["The allowlist's share of create + start", "Milliseconds [95 %]", "of", "Share"], [row])
