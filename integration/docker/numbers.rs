//! F37: files of several subvolumes of btrfs, which count their inodes apart.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::owners::Disk;
use super::{Docker, Policy};
use crate::command::run;

/// Makes a git directory in the subvolume, whose hooks have the number of the project's own.
fn plant(number: u64) -> String {
    format!(
        "mkdir -p v/new/.git && cd v/new/.git && while mkdir hooks && n=$(stat -c %i hooks) && [ $n -lt {number} ]; do rmdir hooks; done; \
         mkdir objects refs; echo evil >hooks/pre-commit; echo $n"
    )
}

/// A number alone would be that of a file which was protected at the start, and so not new.
#[test]
#[ignore = "needs the rig: hack/test"]
fn f37_a_number_that_another_subvolume_has_too_hides_no_new_hook() {
    let docker = Docker::connect();
    for (policy, free) in [
        (Policy::Standard, None),
        (Policy::Permissive, None),
        // The control.
        (Policy::Permissive, Some("filesystem.unprotected=*")),
    ] {
        let disk = Disk::new("btrfs");
        let own = disk.path(".git/hooks");
        fs::create_dir_all(&own).unwrap();
        for name in [".git/objects", ".git/refs"] {
            fs::create_dir(disk.path(name)).unwrap();
        }
        fs::write(disk.path(".git/HEAD"), "ref: refs/heads/main\n").unwrap();
        fs::write(disk.path(".git/hooks/pre-commit"), "kept").unwrap();
        run("btrfs", &["subvolume", "create", &disk.path("v")]).ok();
        run("chmod", &["-R", "a+rwX", &disk.path("")]).ok();
        let own = fs::metadata(own).unwrap();
        let volume = format!("--volume={}:/work", disk.path(""));
        let annotation = free.map(|free| format!("--annotation=dev.agentbox.{free}"));
        let mut options = policy.options().to_vec();
        options.extend(annotation.as_deref());
        options.extend([volume.as_str(), "--workdir=/work", "test-probe"]);
        let seen = docker.run(&options, &["sh", "-c", &plant(own.ino())]);
        assert_eq!(seen.stdout, format!("{}\n", own.ino()), "{policy:?} {seen}");
        let new = fs::metadata(disk.path("v/new/.git/hooks")).unwrap();
        assert!(
            new.ino() == own.ino() && new.dev() != own.dev(),
            "{policy:?}"
        );
        let is_there = Path::new(&disk.path("v/new/.git/hooks/pre-commit")).exists();
        assert_eq!(is_there, free.is_some(), "{policy:?} {seen}");
        let kept = fs::read_to_string(disk.path(".git/hooks/pre-commit"));
        assert_eq!(kept.unwrap(), "kept", "{policy:?}");
    }
}
