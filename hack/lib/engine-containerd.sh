# shellcheck shell=bash
# A containerd of its own in a rig, with its CRI service, for `ctr` and for pods. Sourced by rig-inner.sh.
#
# It knows no arguments for a runtime, only a path: the names agentbox-POLICY are the scripts of make_wrappers.

CNI_PLUGINS=$RIG_REPO/build/engines/$RIG_ENGINE/usr/lib/cni

configure_engine() {
    mkdir -p /etc/containerd /etc/cni/net.d
    cat >/etc/cni/net.d/10-rig.conflist <<'JSON'
{ "cniVersion": "0.4.0", "name": "rig", "plugins": [ {
    "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
    "ipam": { "type": "host-local", "ranges": [[{ "subnet": "10.88.77.0/24" }]], "routes": [{ "dst": "0.0.0.0/0" }] } } ] }
JSON
    case $(containerd --version) in
        *' 1.'* | *' v1.'*) containerd_1_config ;;
        *) containerd_2_config ;;
    esac >/etc/containerd/config.toml
}

# The root lacks CAP_SYS_RESOURCE on some machines: a sandbox's negative oom_score_adj would fail (restrict_oom_score_adj).
containerd_1_config() {
    cat <<TOML
version = 2
root = "$RIG_STATE/containerd"
state = "/run/containerd"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "localhost/test-pause:latest"
  restrict_oom_score_adj = true
TOML
    cat <<TOML
[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "$CNI_PLUGINS"
  conf_dir = "/etc/cni/net.d"
TOML
    handlers 'io.containerd.grpc.v1.cri'
}

containerd_2_config() {
    cat <<TOML
version = 3
root = "$RIG_STATE/containerd"
state = "/run/containerd"
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "localhost/test-pause:latest"
[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
TOML
    cat <<TOML
[plugins."io.containerd.cri.v1.runtime".cni]
  bin_dirs = ["$CNI_PLUGINS"]
  conf_dir = "/etc/cni/net.d"
TOML
    handlers 'io.containerd.cri.v1.runtime'
}

# handlers PLUGIN: a CRI handler for each name, with the patterns of hack/kubernetes. Annotations that match none are dropped.
handlers() {
    local name
    for name in runc agentbox agentbox-strict agentbox-standard agentbox-permissive agentbox-unconfined; do
        cat <<TOML
[plugins."$1".containerd.runtimes.$name]
  runtime_type = "io.containerd.runc.v2"
  pod_annotations = ["*[Aa]gent[Bb]ox*", "*[Aa]gent[Bb]ox*/*", "*/*[Aa]gent[Bb]ox*"]
  container_annotations = ["*[Aa]gent[Bb]ox*", "*[Aa]gent[Bb]ox*/*", "*/*[Aa]gent[Bb]ox*"]
  [plugins."$1".containerd.runtimes.$name.options]
    BinaryName = "$name"
TOML
    done
}

start_engine() {
    mkdir -p "$RIG_STATE/containerd"
    env -i PATH="$PATH" HOME=/root setsid containerd >"$RIG_STATE/engine.log" 2>&1 &
    ENGINE_PID=$!
    await_engine ctr version
}

remove_containers() {
    local space id
    for space in default k8s.io; do
        for id in $(ctr -n "$space" tasks ls -q); do
            timeout 20 ctr -n "$space" tasks rm -f "$id" >/dev/null || say "the task $id could not be removed"
        done
        for id in $(ctr -n "$space" containers ls -q); do
            ctr -n "$space" containers rm "$id" >/dev/null || say "the container $id could not be removed"
        done
    done
}

# containerd has no list of config digests: the name that load_image gave each image holds it.
image_ids() { ctr -n k8s.io images ls -q | sed -n 's/^localhost\/agentbox-id\/\([0-9a-f]*\):latest$/sha256:\1/p'; }

# load_image FILE NAME ID
load_image() {
    local space
    for space in default k8s.io; do
        ctr -n "$space" images import "$1" >/dev/null
        ctr -n "$space" images tag --force "localhost/$2:latest" "localhost/agentbox-id/${3#sha256:}:latest" >/dev/null
    done
}
prune_images() { :; }
