//! A pod's own volumes, and mounts that are none.

use super::*;
use crate::plan::facts::TokenContent;
use crate::plan::pod::pod;
use crate::policy::SecretRule;

const UID: &str = "44ef987d-52e5-492b-83a5-a0f5664f6f43";
const VOLUMES: &str = "/var/lib/kubelet/pods/44ef987d-52e5-492b-83a5-a0f5664f6f43/volumes";
const SUBPATHS: &str = "/var/lib/kubelet/pods/44ef987d-52e5-492b-83a5-a0f5664f6f43/volume-subpaths";

/// A container of the pod `UID`.
fn in_pod(policy: &str) -> Case {
    let mut case = under(policy);
    case.facts.cri = true;
    let case = case.set(
        "/linux",
        "cgroupsPath",
        json!(format!("/kubepods/burstable/pod{UID}/{ID}")),
    );
    let role = json!({"io.kubernetes.cri.container-type": "container"});
    case.set("", "annotations", role)
}

/// The access of a mount whose source has these names: `ro`, `rw`, or why it is omitted.
fn becomes(case: Case, source: &str, names: &[&str]) -> String {
    let case = case.bind(source, "/x");
    let case = case.found(|f| f.names = names.iter().map(PathBuf::from).collect());
    access(&case.plan(), "/x")
}

fn noexec(plan: &Plan) -> bool {
    let mount = &plan.filesystem.mounts[0];
    mount.options().iter().any(|o| o == "noexec")
}

#[test]
fn the_cgroup_decides_the_pod() {
    let slice = UID.replace('-', "_");
    let of = |path: &str, role: &str| {
        let case = in_pod("standard")
            .set("/linux", "cgroupsPath", json!(path))
            .set("", "annotations", json!({ role: "container" }));
        pod(&serde_json::from_value(case.spec).unwrap(), &case.facts).map(|pod| pod.uid)
    };
    let cri = "io.kubernetes.cri.container-type";
    for path in [
        format!("/kubepods/pod{UID}/{ID}"),
        format!("/kubepods/besteffort/pod{UID}/{ID}"),
        format!("/site/kubepods/burstable/pod{UID}/{ID}"),
        format!("kubepods-burstable-pod{slice}.slice:cri-containerd:{ID}"),
        format!("kubepods-pod{slice}.slice:crio:{ID}"),
        format!(
            "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{slice}.slice/{ID}"
        ),
    ] {
        assert_eq!(of(&path, cri).as_deref(), Some(UID), "{path}");
        assert_eq!(
            of(&path, "io.kubernetes.cri-o.ContainerType").as_deref(),
            Some(UID)
        );
        assert_eq!(of(&path, "org.example.type"), None);
    }
    for path in [
        "/docker/x",
        "/kubepods/burstable/pod../x",
        "/kubepods/pod/x",
        "/pod44ef987d-52e5/x",
        "/k8s/x",
    ] {
        assert_eq!(of(path, cri), None, "{path}");
    }
}

/// Files again, 2: Docker's caller chooses annotations and cgroup.
#[test]
fn only_a_cri_engine_is_trusted_to_name_a_pod() {
    let volume = format!("{VOLUMES}/kubernetes.io~empty-dir/cache");
    let mut case = in_pod("strict");
    case.facts.cri = false;
    let answer = becomes(case, &volume, &[]);
    assert!(answer.contains("the workspace alone"), "{answer}");
    let secret = format!("{VOLUMES}/kubernetes.io~secret/s");
    let mut case = in_pod("permissive");
    case.facts.cri = false;
    let answer = becomes(case, &secret, &[]);
    assert!(answer.contains("credentials"), "{answer}");
    let mut case = in_pod("permissive").bind_of(
        FileKind::File,
        &format!("/var/lib/kubelet/pods/{UID}/containers/app/abfecb25"),
        "/dev/termination-log",
    );
    case.facts.cri = false;
    assert_ne!(access(&case.plan(), "/dev/termination-log"), "rw");
}

/// Files again, 4: a volume that is a bind mount of something else.
#[test]
fn a_source_with_another_name_is_no_volume() {
    let scratch = format!("{VOLUMES}/kubernetes.io~empty-dir/b");
    let answer = becomes(in_pod("strict"), &scratch, &["/home/bob/project"]);
    assert!(answer.contains("the workspace alone"), "{answer}");
    let secret = format!("{VOLUMES}/kubernetes.io~secret/s");
    let answer = becomes(in_pod("permissive"), &secret, &["/root/.ssh"]);
    assert!(answer.len() > 2, "{answer}");
    let log = format!("/var/lib/kubelet/pods/{UID}/containers/app/abfecb25");
    let answer = becomes(in_pod("strict"), &scratch, &[&log]);
    assert!(answer.len() > 2, "{answer}");
    // Not in memory: no kubelet's Secret.
    let case = in_pod("permissive").bind(&secret, "/x");
    let answer = access(&case.found(|f| f.tmpfs = false).plan(), "/x");
    assert!(answer.contains("credentials"), "{answer}");
    // A directory that no policy makes writable.
    let case = in_pod("strict").bind(&scratch, "/x");
    let runtime = case.found(|f| f.runtime = Some(format!("{scratch}/agentbox").into()));
    assert_eq!(access(&runtime.plan(), "/x"), "ro");
}

/// Gives the last mount other names, each for the same directory of the kubelet's own.
fn again(case: Case, names: &[(&str, &str)]) -> Case {
    case.found(|f| {
        for (name, own) in names {
            f.names.insert(name.into());
            f.by_kubelet.insert(name.into(), own.into());
        }
    })
}

/// A disk bound to the kubelet's directory, and another pod's subPath of that directory.
#[test]
fn a_kubelets_directory_through_another_mount_is_the_same() {
    let below = [
        "/mnt/disk/kubelet/pods",
        "/var/lib/kubelet/pods/77ef987d-0000/volume-subpaths/v/c/0",
    ];
    let pods = "/var/lib/kubelet/pods";
    let cases = |case: &dyn Fn() -> Case, source: &str, kind, place: &str| -> [String; 2] {
        let own = |new: &str| source.replace(pods, new);
        let names = below.map(own);
        let strange = case()
            .bind_of(kind, source, place)
            .found(|f| f.names = names.iter().map(PathBuf::from).collect());
        let plan = strange.plan();
        let told = plan.warnings.iter().any(
            |w| matches!(w, Warning::StrangeVolume { place: at, .. } if at == Path::new(place)),
        );
        assert!(told, "{source}: {:?}", plan.warnings);
        let pairs = names.each_ref().map(|name| (name.as_str(), source));
        let same = again(case().bind_of(kind, source, place), &pairs).plan();
        assert_eq!(same.warnings, [], "{source}");
        [access(&plan, place), access(&same, place)]
    };
    let log = format!("{pods}/{UID}/containers/app/abfecb25");
    let scratch = format!("{VOLUMES}/kubernetes.io~empty-dir/b");
    let settings = format!("{VOLUMES}/kubernetes.io~configmap/c");
    let secret = format!("{VOLUMES}/kubernetes.io~secret/s");
    let strict = || in_pod("strict");
    let standard = || in_pod("standard").annotation("filesystem.secrets", "read-only");
    let secrets = || {
        in_pod("standard").site(|p| {
            p.filesystem.secrets = SecretRule::ReadOnly;
            p.filesystem.service_account_token = SecretRule::ReadOnly;
        })
    };
    let file = FileKind::File;
    let directory = FileKind::Directory;
    for (case, source, kind, place, expect) in [
        (&strict as &dyn Fn() -> Case, &log, file, "/tmp/why", "rw"),
        (&strict, &log, file, "/dev/termination-log", "rw"),
        (&strict, &scratch, directory, "/x", "rw"),
        (&standard, &settings, directory, "/x", "ro"),
        (&secrets, &secret, directory, "/x", "ro"),
    ] {
        let [strange, same] = cases(case, source, kind, place);
        assert_eq!(same, expect, "{source}");
        // As an ordinary mount, a ConfigMap is readable under standard.
        assert!(strange != expect || *source == settings, "{source}");
    }
}

/// A hostPath directory with the pod's own uid in its name, by `subPathExpr`, is no volume.
#[test]
fn a_name_alone_makes_no_volume() {
    let sub = format!("{SUBPATHS}/b/app/0");
    let volume = format!("{UID}/volumes/kubernetes.io~empty-dir/b");
    for below in ["/srv/pods", "/srv/var/lib/kubelet/pods", "/data"] {
        let name = format!("{below}/{volume}");
        let answer = becomes(in_pod("strict"), &sub, &[&name]);
        assert!(answer.contains("the workspace alone"), "{name}: {answer}");
        let answer = becomes(in_pod("strict"), &name, &[]);
        assert!(answer.contains("the workspace alone"), "{name}: {answer}");
    }
    // The kubelet's directory through another mount, with another pod's volume there.
    let other = format!("{VOLUMES}/kubernetes.io~empty-dir/b").replace("44ef987d", "55ef987d");
    let case = again(in_pod("strict").bind(&sub, "/x"), &[("/mnt/p/b", &other)]);
    let answer = access(&case.plan(), "/x");
    assert!(answer.contains("the workspace alone"), "{answer}");
    let secret = other.replace("empty-dir", "secret");
    let case = in_pod("permissive").bind(&sub, "/x");
    let case = again(case, &[("/mnt/p/b", &secret)]).found(|f| {
        f.names.insert(secret.clone().into());
    });
    let answer = access(&case.plan(), "/x");
    assert!(answer.contains("credentials"), "{answer}");
}

#[test]
fn an_empty_dir_is_the_pods_own_scratch() {
    let volume = format!("{VOLUMES}/kubernetes.io~empty-dir/cache");
    let sub = (format!("{SUBPATHS}/cache/app/0"), format!("{volume}/sub"));
    for (source, names) in [(volume.as_str(), &[][..]), (&sub.0, &[sub.1.as_str()])] {
        for policy in ["strict", "standard", "permissive"] {
            assert_eq!(becomes(in_pod(policy), source, names), "rw", "{policy}");
            let asked = in_pod(policy).bind(source, "/x").options(&["ro"]);
            let asked = asked.found(|f| f.names = names.iter().map(PathBuf::from).collect());
            assert_eq!(access(&asked.plan(), "/x"), "ro", "{policy}");
            let plan = in_pod(policy).bind(&volume, "/x").plan();
            assert_eq!(noexec(&plan), policy == "strict", "{policy}");
        }
    }
    // Another pod's, in no pod, with a second volume's name, under another volume's name, without its volume.
    let other = volume.replace("44ef987d", "55ef987d");
    let twice = format!("{VOLUMES}/kubernetes.io~empty-dir/other");
    let foreign = format!("{SUBPATHS}/elsewhere/app/0");
    for (case, source, names) in [
        (in_pod("strict"), other.as_str(), &[][..]),
        (under("strict"), &volume, &[]),
        (in_pod("strict"), &volume, &[twice.as_str()]),
        (in_pod("strict"), &foreign, &[volume.as_str()]),
        (in_pod("strict"), &sub.0, &[]),
    ] {
        let answer = becomes(case, source, names);
        assert!(answer.contains("the workspace alone"), "{source}: {answer}");
    }
    let answer = becomes(in_pod("standard"), &volume, &["/etc/kubernetes"]);
    assert!(answer.contains("/etc"), "{answer}");
    // It does not compete with the project's own mount as the workspace.
    let plan = in_pod("strict")
        .bind("/srv/project", "/work")
        .bind(&volume, "/cache")
        .cwd("/work")
        .plan();
    assert_eq!(plan.filesystem.workspace, Some("/work".into()));
}

#[test]
fn settings_are_readable_and_never_writable() {
    for plugin in ["kubernetes.io~configmap", "kubernetes.io~downward-api"] {
        let volume = format!("{VOLUMES}/{plugin}/v");
        for policy in ["standard", "permissive"] {
            assert_eq!(becomes(in_pod(policy), &volume, &[]), "ro", "{plugin}");
        }
        let answer = becomes(in_pod("strict"), &volume, &[]);
        assert!(answer.contains("the workspace alone"), "{answer}");
    }
    // Storage is an ordinary mount.
    for plugin in [
        "kubernetes.io~csi/pvc/mount",
        "kubernetes.io~nfs/v",
        "kubernetes.io~iscsi/v",
        "kubernetes.io~local-volume/v",
    ] {
        let volume = format!("{VOLUMES}/{plugin}");
        let (inside, sub) = (format!("{volume}/data"), format!("{SUBPATHS}/v/app/0"));
        for (policy, expect) in [("standard", "ro"), ("permissive", "rw")] {
            // A local disk's volume also has a directory of the node.
            for names in [&[][..], &["/mnt/disks/a"]] {
                assert_eq!(becomes(in_pod(policy), &volume, names), expect, "{plugin}");
            }
            let names = [inside.as_str(), "/mnt/disks/a/data"];
            assert_eq!(becomes(in_pod(policy), &sub, &names), expect, "{plugin}");
            // The Secrets field does not apply, and the never list does.
            let with = in_pod(policy).annotation("filesystem.secrets", "read-only");
            assert_eq!(becomes(with, &volume, &[]), expect, "{plugin}");
            let answer = becomes(in_pod(policy), &volume, &["/etc/kubernetes"]);
            assert!(answer.contains("/etc"), "{answer}");
        }
    }
}

#[test]
fn an_image_of_the_pods_own_is_read_only() {
    const ROOT: &str = "/run/containerd/io.containerd.grpc.v1.cri/image-volumes";
    const STORE: &str = "/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots";
    let image = format!("{ROOT}/{ID}/b7988756");
    let layers = [format!("{STORE}/2/fs"), format!("{STORE}/24/fs")];
    let layers = [layers[0].as_str(), &layers[1]];
    let with = |policy: &str, sandbox: &str| {
        let role = json!({
            "io.kubernetes.cri.container-type": "container",
            "io.kubernetes.cri.sandbox-id": sandbox,
        });
        in_pod(policy).set("", "annotations", role)
    };
    for policy in ["standard", "permissive"] {
        for part in ["", "/etc"] {
            let inside = layers.map(|layer| format!("{layer}{part}"));
            let inside = [inside[0].as_str(), &inside[1]];
            let image = format!("{image}{part}");
            assert_eq!(becomes(with(policy, ID), &image, &inside), "ro");
        }
    }
    let answer = becomes(with("strict", ID), &image, &layers);
    assert!(answer.contains("the workspace alone"), "{answer}");
    // Another sandbox, the whole sandbox, all sandboxes, no layers, another name, and a snapshot by its own path.
    let two = [layers[0], "/etc/kubernetes"];
    let all = format!("{ROOT}/{ID}");
    for (sandbox, source, names) in [
        ("0123", image.as_str(), &layers[..]),
        (ID, &all, &layers),
        (ID, ROOT, &layers),
        (ID, &image, &[]),
        (ID, &image, &two),
        (ID, layers[0], &[]),
    ] {
        let answer = becomes(with("permissive", sandbox), source, names);
        assert!(
            answer.contains("containerd") || answer.contains("engines"),
            "{answer}"
        );
    }
}

/// Under CRI-O the author may have written containerd's key.
#[test]
fn an_author_cannot_name_another_pods_sandbox() {
    let sandbox = |more: &str| {
        let case = in_pod("standard").set(
            "",
            "annotations",
            json!({more: "container", "io.kubernetes.cri.sandbox-id": ID}),
        );
        pod(&serde_json::from_value(case.spec).unwrap(), &case.facts).map(|pod| pod.sandbox)
    };
    let own = Some(ID.to_owned());
    assert_eq!(sandbox("io.kubernetes.cri.container-type"), Some(own));
    assert_eq!(sandbox("io.kubernetes.cri-o.ContainerType"), Some(None));
}

/// A volume with secrets, under a policy with these two fields.
fn secret(plugin: &str, holds: Option<TokenContent>, fields: [&str; 2]) -> Case {
    let source = format!("{VOLUMES}/{plugin}/v");
    let case = in_pod("standard").bind(&source, "/x");
    let case = case.found(|f| f.holds = holds);
    match fields {
        ["read-only", "drop"] => case.annotation("filesystem.secrets", "read-only"),
        ["read-only", _] => case.site(|p| {
            p.filesystem.secrets = SecretRule::ReadOnly;
            p.filesystem.service_account_token = SecretRule::ReadOnly;
        }),
        [_, "read-only"] => {
            case.site(|p| p.filesystem.service_account_token = SecretRule::ReadOnly)
        }
        _ => case,
    }
}

#[test]
fn fields_decide_about_secrets_and_tokens() {
    use TokenContent::{NoToken, TokenAlone, TokenAndMore};
    const DROP: &str = "drop";
    const READ: &str = "read-only";
    for plugin in ["kubernetes.io~secret", "kubernetes.io~projected"] {
        for (holds, fields, expect) in [
            (Some(NoToken), [DROP, DROP], "filesystem.secrets"),
            (Some(NoToken), [DROP, READ], "filesystem.secrets"),
            (Some(NoToken), [READ, DROP], "ro"),
            (Some(TokenAlone), [DROP, DROP], "service-account-token"),
            (Some(TokenAlone), [READ, DROP], "service-account-token"),
            (Some(TokenAlone), [DROP, READ], "ro"),
            (Some(TokenAndMore), [READ, DROP], "service-account-token"),
            (Some(TokenAndMore), [DROP, READ], "filesystem.secrets"),
            (Some(TokenAndMore), [READ, READ], "ro"),
            // The content could not be read.
            (None, [READ, DROP], "service-account-token"),
            (None, [DROP, READ], "filesystem.secrets"),
            (None, [READ, READ], "ro"),
        ] {
            let answer = access(&secret(plugin, holds, fields).plan(), "/x");
            assert!(
                answer.contains(expect),
                "{plugin} {holds:?} {fields:?}: {answer}"
            );
            assert!(expect != "ro" || answer == "ro", "{answer}");
        }
    }
    // If it needs both fields, both are named.
    for holds in [Some(TokenAndMore), None] {
        let answer = access(
            &secret("kubernetes.io~secret", holds, [DROP, DROP]).plan(),
            "/x",
        );
        for field in ["filesystem.service-account-token", "filesystem.secrets"] {
            assert!(answer.contains(field), "{holds:?}: {answer}");
        }
    }
    let words = access(
        &secret("kubernetes.io~projected", Some(NoToken), [DROP, DROP]).plan(),
        "/x",
    );
    assert!(words.contains("looks like a ConfigMap"), "{words}");
}

#[test]
fn a_sub_path_is_checked_like_its_volume_and_foreign_secrets_are_never_mounted() {
    let volume = format!("{VOLUMES}/kubernetes.io~secret/s");
    let inside = format!("{volume}/..data/key");
    let sub = format!("{SUBPATHS}/s/app/0");
    let given = |source: &str, names: &[&str]| {
        let case = in_pod("standard").annotation("filesystem.secrets", "read-only");
        let case = case.bind_of(FileKind::File, source, "/x").found(|f| {
            f.names = names.iter().map(PathBuf::from).collect();
            f.holds = Some(TokenContent::NoToken);
        });
        access(&case.plan(), "/x")
    };
    assert_eq!(given(&sub, &[&inside]), "ro");
    assert_eq!(given(&inside, &[]), "ro");
    for (source, names) in [
        (inside.replace("44ef987d", "55ef987d"), None),
        // Through a subPath of a hostPath.
        (sub.replace("/s/app", "/root/app"), Some(inside.as_str())),
        (
            sub.replace("44ef987d", "55ef987d"),
            Some(&inside.replace("44ef987d", "55ef987d")),
        ),
        (
            "/data/kubelet/pods/u/volumes/kubernetes.io~secret/s".into(),
            None,
        ),
    ] {
        let answer = given(&source, names.as_slice());
        assert!(answer.contains("credentials"), "{source}: {answer}");
    }
    // A key may have a credential's name.
    assert_eq!(given(&format!("{volume}/..data/.npmrc"), &[]), "ro");
}

/// A hard link there would make another file writable.
#[test]
fn a_termination_message_with_another_name_is_refused() {
    let log = format!("/var/lib/kubelet/pods/{UID}/containers/app/abfecb25");
    for policy in ["strict", "standard", "permissive"] {
        let case = in_pod(policy).bind_of(FileKind::File, &log, "/tmp/why");
        let answer = access(&case.found(|f| f.hard_linked = true).plan(), "/tmp/why");
        assert!(answer.contains("every pod's volumes"), "{answer}");
    }
}

#[test]
fn a_termination_message_is_writable_at_any_path_of_the_pods_choice() {
    let log = format!("/var/lib/kubelet/pods/{UID}/containers/app/abfecb25");
    let message = |case: Case, kind, source: &str, place: &str| {
        let case = case.bind_of(kind, source, place);
        // A kubelet makes it 0666.
        let plan = case.found(|f| f.trusted = false).plan();
        access(&plan, place)
    };
    let file = FileKind::File;
    for policy in ["strict", "standard", "permissive"] {
        for place in ["/dev/termination-log", "/tmp/why"] {
            assert_eq!(message(in_pod(policy), file, &log, place), "rw", "{policy}");
        }
        for (case, kind, source, place) in [
            (
                in_pod(policy),
                file,
                log.replace("44ef", "55ef"),
                "/dev/termination-log",
            ),
            (
                in_pod(policy),
                file,
                format!("{log}/x"),
                "/dev/termination-log",
            ),
            (
                in_pod(policy),
                file,
                log.replace("abfecb25", "..x"),
                "/dev/termination-log",
            ),
            (
                in_pod(policy),
                FileKind::Directory,
                log.clone(),
                "/dev/termination-log",
            ),
            (
                in_pod(policy),
                file,
                "/srv/log".into(),
                "/dev/termination-log",
            ),
            (in_pod(policy), file, log.clone(), "/proc/1/x"),
            (in_pod(policy), file, log.clone(), "/dev/other"),
            (under(policy), file, log.clone(), "/dev/termination-log"),
        ] {
            let answer = message(case, kind, &source, place);
            assert!(answer.len() > 2, "{source} at {place}: {answer}");
        }
    }
}

/// An ordinary pod has no denials: its kubelet mounts a token, and its engine a writable host name file. What a caller
/// mounts at these places is a request.
#[test]
fn only_mounts_that_an_engine_makes_by_itself_are_no_request() {
    let token = format!("{VOLUMES}/kubernetes.io~projected/kube-api-access-x7k2p");
    let of_every_engine = |case: Case, source: &str| {
        let case = case.bind(source, crate::engines::kubelet::TOKEN_MOUNT);
        let plan = case.found(|f| f.tmpfs = true).plan();
        plan.filesystem.pruned[0].of_every_engine
    };
    assert!(of_every_engine(in_pod("standard"), &token));
    let mut dockers = in_pod("standard");
    dockers.facts.cri = false;
    assert!(!of_every_engine(dockers, &token));
    let of_another_pod = token.replace("44ef987d", "77ef987d");
    assert!(!of_every_engine(in_pod("standard"), &of_another_pod));
    assert!(!of_every_engine(in_pod("strict"), "/srv/keys"));
    // An author's own volumes there are requests.
    for (plugin, name, is_kubelets) in [
        ("projected", "vault", false),
        ("secret", "keys", false),
        ("projected", "kube-api-access-vault", false),
        ("secret", "default-token-x7k2p", true),
        ("secret", "my-token-store", false),
    ] {
        let source = format!("{VOLUMES}/kubernetes.io~{plugin}/{name}");
        let found = of_every_engine(in_pod("standard"), &source);
        assert_eq!(found, is_kubelets, "{source}");
    }
    // Fedora's and RHEL's podman mounts a directory of its own.
    let podmans = |source: &str| {
        let case = under("standard").bind(source, "/run/secrets");
        case.plan().filesystem.pruned[0].of_every_engine
    };
    let own = format!("/var/lib/containers/storage/overlay-containers/{ID}/userdata/run/secrets");
    assert!(podmans(&own));
    assert!(!podmans(&own.replace("userdata", "other")));
    let options = |source: &str| {
        let case = in_pod("standard").bind_of(FileKind::File, source, "/etc/hostname");
        let all = case.options(&["rw"]).plan().not_given;
        let is_of_host_name = |item: &OmittedItem| item.to_string().contains("/etc/hostname");
        let own: Vec<OmittedItem> = all.into_iter().filter(is_of_host_name).collect();
        assert_eq!(own.len(), 1, "{own:?}");
        own[0].is_of_every_engine()
    };
    assert!(options(&format!(
        "/var/lib/docker/containers/{ID}/hostname"
    )));
    assert!(!options("/srv/hostname"));
}
