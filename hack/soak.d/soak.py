"""hack/soak, inside the rig: see there."""

import argparse
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import time

import direct
import engine
import node


class Stage:
    """What all containers share."""

    def __init__(self, seed):
        self.seed = seed
        self.binary = os.environ["AGENTBOX_BIN"]
        self.directory = f"/srv/soak-{seed}"
        self.root = f"{self.directory}/root"
        self.limits = f"{self.directory}/limits.json"
        shutil.rmtree(self.directory, ignore_errors=True)
        rootfs = f"{self.directory}/rootfs"
        for name in ("bin", "dev", "proc", "sys", "tmp", "var", "root", "etc"):
            os.makedirs(f"{rootfs}/{name}")
        shutil.copy("/bin/busybox", f"{rootfs}/bin/busybox")
        for name in ("sh", "sleep", "true"):
            os.symlink("busybox", f"{rootfs}/bin/{name}")
        with open(self.limits, "w", encoding="utf-8") as file:
            json.dump({"pids": {"limit": 100}}, file)
        subprocess.run([self.binary, "spec", "--bundle", self.directory], check=True)
        with open(f"{self.directory}/config.json", encoding="utf-8") as file:
            config = json.load(file)
        config["process"]["terminal"] = False
        config["root"]["path"] = rootfs
        self.config = json.dumps(config)


def settled(before):
    """What the whole run left, after those that end by themselves have ended."""
    end = time.monotonic() + 10
    while True:
        after = node.everything()
        more = {kind: after[kind] - before[kind] for kind in before}
        if not any(more.values()) or time.monotonic() > end:
            return [f"{kind}: {sorted(map(str, items))}" for kind, items in more.items() if items]
        time.sleep(0.2)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=int.from_bytes(os.urandom(3), "big"))
    parser.add_argument("--containers", type=int, default=300)
    parser.add_argument("--parallel", type=int, default=8)
    parser.add_argument("--docker", type=int, default=40)
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    stage = Stage(arguments.seed)
    # What the runtime keeps for ever is there before the first look.
    first = direct.Container(stage, "first")
    first.must(*first.create())
    first.must("start", first.id)
    # A look that finds nothing here would find nothing later either.
    seen = node.left(first.id, stage.root, [first.id, first.bundle], patience=0)
    kinds = {line.split()[0] for line in seen}
    assert kinds >= {"process", "file", "cgroup"}, seen
    first.check_gone()
    before = node.everything()
    start = time.monotonic()
    problems = []
    with concurrent.futures.ThreadPoolExecutor(arguments.parallel) as pool:
        runs = [pool.submit(direct.run, stage, index) for index in range(arguments.containers)]
        runs += [pool.submit(engine.run, arguments.seed, index) for index in range(arguments.docker)]
        for run in concurrent.futures.as_completed(runs):
            problem = run.result()
            if problem:
                problems.append(problem)
                print(problem, flush=True)
    if arguments.docker:
        problems += engine.kill_engine(arguments.seed)
    problems += settled(before)
    seconds = time.monotonic() - start
    total = arguments.containers + arguments.docker
    print(f"{total} containers, {len(problems)} problems, {seconds:.0f} s, seed {arguments.seed}")
    for problem in problems:
        print(problem.splitlines()[0])
    shutil.rmtree(stage.directory, ignore_errors=not problems)
    return 1 if problems else 0


sys.exit(main())
