//! Files again, 1: whose files the runtime reads names from.

use super::*;
use crate::plan::support::names_file;

const UID: &str = "44ef987d-52e5-492b-83a5-a0f5664f6f43";

fn names(case: Case, target: &str) -> Result<Option<PathBuf>, PathBuf> {
    let spec = serde_json::from_value(case.spec).unwrap();
    names_file(&spec, &case.facts, target)
}

fn of(source: &str, target: &str) -> Case {
    let mut case = under("strict").set(
        "/linux",
        "cgroupsPath",
        json!(format!("/kubepods/pod{UID}/{ID}")),
    );
    case.facts.cri = true;
    let role = json!({"io.kubernetes.cri.container-type": "container"});
    case.set("", "annotations", role)
        .bind_of(FileKind::File, source, target)
}

#[test]
fn an_engines_files_are_known_by_target_and_source_together() {
    for (source, target) in [
        (
            format!("/var/lib/docker/containers/{ID}/hosts"),
            "/etc/hosts",
        ),
        (
            format!("/var/lib/docker/containers/{ID}/resolv.conf"),
            "/etc/resolv.conf",
        ),
        (
            format!("/run/containers/storage/overlay-containers/{ID}/userdata/hosts"),
            "/etc/hosts",
        ),
        (
            format!("/var/lib/containerd/io.containerd.grpc.v1.cri/sandboxes/{ID}/resolv.conf"),
            "/etc/resolv.conf",
        ),
        (
            format!("/var/lib/kubelet/pods/{UID}/etc-hosts"),
            "/etc/hosts",
        ),
    ] {
        assert_eq!(
            names(of(&source, target), target),
            Ok(Some(source.clone().into()))
        );
        let strange =
            |change: fn(&mut SourceFacts)| names(of(&source, target).found(change), target);
        for answer in [
            strange(|f| f.trusted = false),
            strange(|f| f.kind = FileKind::Directory),
            strange(|f| f.names = [PathBuf::from("/root/.netrc")].into()),
            strange(|f| f.same_as = Some("/etc/shadow".into())),
            strange(|f| f.nameless = Some("unknown".into())),
        ] {
            assert_eq!(answer, Err(source.clone().into()));
        }
    }
}

#[test]
fn what_the_caller_mounts_there_is_not_read() {
    let host_name = format!("/var/lib/docker/containers/{ID}/hostname");
    let other = format!("/var/lib/kubelet/pods/{}/etc-hosts", UID.replace('4', "5"));
    for source in [
        "/root/.netrc",
        "/etc/hosts",
        "/etc/cron.d/x",
        &host_name,
        &other,
        "/srv/containers/hosts",
    ] {
        assert_eq!(
            names(of(source, "/etc/hosts"), "/etc/hosts"),
            Err(source.into())
        );
    }
    assert_eq!(names(under("strict"), "/etc/hosts"), Ok(None));
}
