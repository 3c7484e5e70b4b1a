"""Containers of agentbox called by hand: verbs that are killed, processes that are killed, verbs that race."""

import json
import os
import random
import shutil
import signal
import subprocess
import time

import node

VERB_LIMIT = 30


class Failure(Exception):
    """Something that must not happen, with what was done before."""


class Container:
    """One id and its bundle."""

    def __init__(self, stage, index):
        self.stage = stage
        self.dice = random.Random(f"{stage.seed}-{index}")
        self.id = f"soak-{stage.seed}-{index}-end"
        self.policy = self.dice.choice(["unconfined", "standard"])
        self.bundle = f"{stage.directory}/bundle-{index}-end"
        self.log = []
        os.makedirs(self.bundle)
        config = json.loads(stage.config)
        config["process"]["args"] = ["sleep", "100"]
        if self.dice.random() < 0.5:
            config["linux"]["cgroupsPath"] = f"/soak/{self.id}"
        with open(f"{self.bundle}/config.json", "w", encoding="utf-8") as file:
            json.dump(config, file)

    def start(self, verb, *arguments, binary=None):
        """Starts a verb on this id."""
        policy = ["--policy", self.policy]
        command = [binary or self.stage.binary, "--root", self.stage.root, *policy, verb, *arguments]
        self.log.append(" ".join([verb, *arguments]))
        output = open(f"{self.bundle}/output", "ab")
        with output:
            return subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
            )

    def finish(self, process):
        try:
            code = process.wait(VERB_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise Failure(f"a verb took more than {VERB_LIMIT} s") from None
        self.log.append(f"  -> {code}")
        return code

    def call(self, verb, *arguments, binary=None):
        return self.finish(self.start(verb, *arguments, binary=binary))

    def must(self, verb, *arguments, binary=None):
        code = self.call(verb, *arguments, binary=binary)
        if code != 0:
            raise Failure(f"{verb} failed with {code}")

    def create(self):
        return ["create", "--bundle", self.bundle, self.id]

    def killed(self, verb, *arguments):
        """A verb that is killed somewhere in its first milliseconds, if it is still there."""
        process = self.start(verb, *arguments)
        time.sleep(self.dice.random() * self.dice.choice([0.002, 0.02, 0.08]))
        process.kill()
        self.finish(process)

    def record(self):
        for name in os.listdir(f"{node.RUN}/index"):
            if name.endswith(self.id):
                return json.loads(node.read(f"{node.RUN}/index/{name}/record.json") or "{}")
        return {}

    def kill_process(self, which):
        process = self.record().get(which) or {}
        self.log.append(f"SIGKILL {which} {process.get('pid')}")
        if process.get("pid"):
            try:
                os.kill(process["pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass

    def kill_helper(self):
        """libcontainer's own processes, whose numbers are recorded nowhere."""
        for pid in node.pids():
            arguments = node.read(f"/proc/{pid}/cmdline")
            if self.bundle in arguments and self.dice.random() < 0.5:
                self.log.append(f"SIGKILL helper {pid}")
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass

    def check_gone(self):
        self.must("delete", "--force", self.id)
        found = node.left(self.id, self.stage.root, [self.id, self.bundle])
        if found:
            raise Failure("left after delete --force:\n    " + "\n    ".join(found))

    def check_usable(self):
        self.must(*self.create())
        self.must("start", self.id)
        state = self.state()
        if state.get("status") != "running":
            raise Failure(f"started, and its state is {state}")
        self.check_gone()

    def state(self):
        """The state as JSON; empty when the id is not there."""
        command = [self.stage.binary, "--root", self.stage.root, "state", self.id]
        seen = subprocess.run(command, capture_output=True, text=True, timeout=VERB_LIMIT, check=False)
        if seen.returncode == 0:
            return json.loads(seen.stdout)
        if "does not exist" not in seen.stderr:
            raise Failure(f"state failed: {seen.stderr}")
        return {}

    def clear(self):
        shutil.rmtree(self.bundle)


def killed_verbs(container):
    """Each verb of a life may be killed."""
    for verb in (
        container.create(),
        ["start", container.id],
        ["exec", container.id, "true"],
        ["exec", "--detach", container.id, "sleep", "100"],
        ["kill", container.id, "KILL"],
        ["delete", container.id],
        ["delete", "--force", container.id],
    ):
        if container.dice.random() < 0.35:
            container.killed(*verb)
        else:
            container.call(*verb)


def killed_processes(container):
    """The first process, the sidecar or a helper goes, at any point of a life."""
    verbs = [container.create(), ["start", container.id], ["exec", container.id, "true"]]
    for verb in verbs:
        process = container.start(*verb)
        if container.dice.random() < 0.5:
            time.sleep(container.dice.random() * 0.05)
            container.dice.choice(
                [
                    container.kill_helper,
                    lambda: container.kill_process("init"),
                    lambda: container.kill_process("sidecar"),
                ]
            )()
        container.finish(process)
    container.kill_process(container.dice.choice(["init", "sidecar"]))


def racing(container):
    """Two verbs at once on one id."""
    create, id = container.create(), container.id
    pairs = [
        (create, create),
        (create, ["delete", "--force", id]),
        (["start", id], ["delete", "--force", id]),
        (["start", id], ["start", id]),
        (["exec", id, "true"], ["delete", "--force", id]),
        (["exec", id, "true"], ["kill", id, "KILL"]),
        (["kill", id, "KILL"], ["delete", "--force", id]),
        (["delete", "--force", id], ["delete", "--force", id]),
        (["pause", id], ["delete", "--force", id]),
        (["update", "--resources", container.stage.limits, id], ["delete", "--force", id]),
    ]
    first, second = container.dice.choice(pairs)
    if first is not create:
        container.must(*create)
    if first[0] in ("exec", "kill", "pause", "update"):
        container.must("start", id)
    both = [container.start(*first)]
    time.sleep(container.dice.random() * 0.02)
    both.append(container.start(*second))
    codes = [container.finish(process) for process in both]
    if first == second and first[0] in ("create", "start") and codes.count(0) != 1:
        raise Failure(f"of two {first[0]} not exactly one succeeded: {codes}")
    if second[0] == "delete" and codes[1] != 0:
        raise Failure(f"delete --force failed beside {first[0]}")
    container.state()


def upgraded(container):
    """The installed file is replaced by another build while the container runs."""
    installed = f"{container.bundle}/agentbox"
    replace(container.stage.binary, installed)
    container.must(*container.create(), binary=installed)
    container.must("start", container.id, binary=installed)
    replace(container.stage.binary, installed)
    container.must("exec", container.id, "true", binary=installed)
    container.must("kill", container.id, "KILL", binary=installed)
    container.must("delete", "--force", container.id, binary=installed)


def replace(source, target):
    """As a package manager does: another file under the same name. Not written by this process: what another thread
    starts meanwhile would hold the file open for writing, and it could not be executed."""
    subprocess.run(["cp", source, f"{target}.new"], check=True)
    os.rename(f"{target}.new", target)


SCENARIOS = [killed_verbs, killed_verbs, killed_processes, killed_processes, racing, racing, upgraded]


def run(stage, index):
    """One container, from its first verb to a node without it. Returns what went wrong, as text."""
    container = Container(stage, index)
    scenario = container.dice.choice(SCENARIOS)
    try:
        scenario(container)
        container.check_gone()
        container.check_usable()
        container.clear()
        return None
    except Failure as failure:
        output = node.read(f"{container.bundle}/output")
        lines = "\n    ".join(container.log)
        return f"{scenario.__name__} {container.id} ({container.policy}): {failure}\n    {lines}\n{output}"
