//! An index that an agent prepared for the next start.

use super::*;

/// H3: an index can list anything. An agent's entries reveal no directory of credentials at the next start. Files of
/// such a directory that git really has are visible, but read-only.
#[test]
#[ignore = "needs the rig: hack/test"]
fn a_crafted_index_opens_no_directory_of_credentials() {
    let docker = Docker::connect();
    let project = Repository::new("crafted");
    project.write("a", "a\n");
    project.commit_all();
    project.write(".ssh/id_rsa", SECRET);
    project.write(".ssh/config", "Host *\n");
    let crafted = "git update-index --add --cacheinfo 100644,$(git hash-object -w a),.ssh/x";
    project.inside(&docker, crafted).ok();
    let script = "ls -A .ssh; echo ProxyCommand evil >.ssh/config || echo refused; echo x >.ssh/new || echo refused; \
        cat .ssh/id_rsa || echo hidden";
    let seen = project
        .inside(&docker, &format!("{{ {script}; }} 2>/dev/null"))
        .ok();
    assert_eq!(seen, "refused\nrefused\nhidden\n");
    assert_eq!(project.read(".ssh/config"), "Host *\n");
    assert!(!Path::new(&project.0).join(".ssh/new").exists());
    // A directory that git has, one level down, and a link.
    project.git(&["reset", "--quiet", "--hard"]).ok();
    project.write(".aws/sub/config", "region = nowhere\n");
    project.write(".aws/credentials", SECRET);
    std::os::unix::fs::symlink("sub/config", Path::new(&project.0).join(".aws/link")).unwrap();
    project.git(&["add", ".aws/sub", ".aws/link"]).ok();
    project.git(&["commit", "--quiet", "-m", "second"]).ok();
    let script = "git status --porcelain; ls -A .aws; cat .aws/link; echo x >.aws/sub/config || echo refused; echo more >>a; \
        git commit -qam third; git show --stat --format=%s; git status --porcelain; su nobody -s /bin/cat .aws/sub/config || true";
    let seen = project
        .inside(&docker, &format!("{{ {script}; }} 2>/dev/null"))
        .ok();
    let expect = "link\nsub\nregion = nowhere\nrefused\nthird\n";
    assert!(seen.starts_with(expect), "{seen}");
    assert!(seen.contains("1 file changed"), "{seen}");
    assert_eq!(project.read(".aws/sub/config"), "region = nowhere\n");
    assert_eq!(project.git(&["status", "--porcelain", "-uno"]).ok(), "");
}

/// Root reads the file that is mounted over `info/exclude`. A user with write access to the directory can move an
/// unreadable file there, but then it is not read.
#[test]
#[ignore = "needs the rig: hack/test"]
fn an_unreadable_file_in_place_of_the_exclude_file_stays_unreadable() {
    use std::os::unix::fs::{PermissionsExt, chown};
    let docker = Docker::connect();
    let project = Repository::new("moved");
    project.write("a", "a\n");
    project.commit_all();
    let root = Path::new(&project.0).to_owned();
    run("chown", &["-R", "1000:1000", &project.0]).ok();
    // In the same directory tree: `.git` is a mount of its own, out of which nothing is renamed.
    project.write(".git/private", SECRET);
    for (path, mode) in [(".git/private", 0o600), (".git/info/exclude", 0o644)] {
        fs::set_permissions(root.join(path), fs::Permissions::from_mode(mode)).unwrap();
    }
    chown(root.join(".git/private"), Some(0), Some(0)).unwrap();
    let user = |script: &str| {
        let volume = format!("--volume={}:/work", project.0);
        let options = [
            "--runtime=agentbox",
            "--user=1000:1000",
            &volume,
            "--workdir=/work",
            "test-probe",
        ];
        let script = format!("{{ {script}; }} 2>/dev/null");
        docker.run(&options, &["sh", "-c", &script]).ok()
    };
    // The control: only its owner can read the file, and everyone can read the exclude file.
    let moved = "cat .git/private || echo refused; touch .netrc; mv .git/private .git/info/exclude && echo moved";
    assert_eq!(user(moved), "refused\nmoved\n");
    assert_eq!(user("cat .git/info/exclude || echo refused"), "refused\n");
    // A file that the user may read is read.
    chown(root.join(".git/info/exclude"), Some(1000), Some(1000)).unwrap();
    let seen = user("cat .git/info/exclude");
    assert!(
        seen.starts_with(SECRET) && seen.ends_with("\n/.netrc\n"),
        "{seen}"
    );
}
