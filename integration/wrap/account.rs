//! A user of the node, made for a test and removed when dropped. Only in a rig, which has its own /etc.

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::command::{Finished, finish, run};
use crate::direct::program;

/// Variables with which git needs no settings of the account's, and stops at the first error.
pub const GIT: &str = "export GIT_CONFIG_GLOBAL=/dev/null GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a; set -e; ";

pub struct Account {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    /// The home directory.
    pub home: String,
    /// A project in it, where `wrap` is called.
    pub project: String,
    /// A group with this name, and the user as its member.
    pub team: u32,
}

impl Account {
    /// Makes a user with an empty home and a project in it.
    ///
    /// It appends lines: useradd(8) replaces /etc/passwd and /etc/group, which another test's `wrap` may be mounting.
    /// The lines go with the rig.
    pub fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        assert!(std::env::var_os("AGENTBOX_RIG").is_some(), "only in a rig");
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let uid = 2000 + (std::process::id() * 64 + count) % 30_000;
        let (gid, team) = (uid + 1, uid + 30_000);
        let name = format!("dev{uid}");
        let home = format!("/home/{name}");
        append(
            "/etc/group",
            &format!("{name}:x:{gid}:\n{name}-team:x:{team}:{name}\n"),
        );
        append(
            "/etc/passwd",
            &format!("{name}:x:{uid}:{gid}:,,,:{home}:/bin/bash\n"),
        );
        std::fs::create_dir_all(&home).unwrap();
        std::os::unix::fs::chown(&home, Some(uid), Some(gid)).unwrap();
        let account = Self {
            project: format!("{home}/src/project"),
            name,
            uid,
            gid,
            home,
            team,
        };
        account.does("mkdir -p ~/src/project");
        account
    }

    /// Runs a script as the user, without walls, in the home. Returns its output.
    #[track_caller]
    pub fn does(&self, script: &str) -> String {
        self.tries(script).ok()
    }

    /// The same, but failures are returned too.
    pub fn tries(&self, script: &str) -> Finished {
        let ids = [self.uid.to_string(), self.gid.to_string()];
        let options = ["--reuid", &ids[0], "--regid", &ids[1], "--init-groups"];
        let mut command = Command::new("setpriv");
        command.args(options).args(["bash", "-c", script]);
        command.env("HOME", &self.home).env("USER", &self.name);
        command.current_dir(&self.home);
        finish(&mut command)
    }

    /// Writes a file of the user's.
    pub fn file(&self, name: &str, content: &str) -> String {
        let path = PathBuf::from(&self.home).join(name);
        let above = path.parent().unwrap().display().to_string();
        self.does(&format!("mkdir -p '{above}'"));
        std::fs::write(&path, content).unwrap();
        let path = path.display().to_string();
        std::os::unix::fs::chown(&path, Some(self.uid), Some(self.gid)).unwrap();
        path
    }

    /// Writes an executable file of the user's.
    pub fn program(&self, name: &str, content: &str) -> String {
        use std::os::unix::fs::PermissionsExt;
        let path = self.file(name, content);
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// Lets the user use sudo(8) with a password, as an administrator does.
    pub fn may_sudo(&self, password: &str) {
        use std::os::unix::fs::PermissionsExt;
        let hash = run("openssl", &["passwd", "-6", password]).ok();
        let line = format!("{}:{}:19000:0:99999:7:::\n", self.name, hash.trim());
        append("/etc/shadow", &line);
        let (name, rule) = (&self.name, "ALL=(ALL:ALL) ALL");
        let file = format!("/etc/sudoers.d/{name}");
        std::fs::write(&file, format!("{name} {rule}\n")).unwrap();
        std::fs::set_permissions(file, std::fs::Permissions::from_mode(0o440)).unwrap();
    }

    /// The beginning of a shell's line that becomes the user.
    pub fn typed(&self) -> String {
        let Self { uid, gid, home, .. } = self;
        format!("HOME={home} setpriv --reuid {uid} --regid {gid} --init-groups")
    }

    /// Runs `agentbox ARGUMENTS...` in the project through sudo, as Debian configures it: HOME and PATH are root's.
    pub fn sudo(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).current_dir(&self.project);
        command.env("SUDO_UID", self.uid.to_string());
        command.env("SUDO_GID", self.gid.to_string());
        command.env("SUDO_USER", &self.name);
        command
            .env("HOME", "/root")
            .env("USER", "root")
            .env("LOGNAME", "root");
        command.env(
            "PATH",
            "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        );
        command
    }

    /// `sudo agentbox wrap OPTIONS... -- bash -c SCRIPT` in the project.
    pub fn wrap(&self, options: &[&str], script: &str) -> Finished {
        let command = [&["wrap"], options, &["--", "bash", "-c", script]].concat();
        finish(&mut self.sudo(&command))
    }

    /// The same under a policy.
    pub fn wrap_by(&self, policy: &str, script: &str) -> Finished {
        self.wrap(&["--policy", policy], script)
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        let gone = std::fs::remove_dir_all(&self.home);
        assert!(gone.is_ok() || std::thread::panicking(), "{gone:?}");
    }
}

fn append(path: &str, line: &str) {
    use std::io::Write;
    let file = std::fs::OpenOptions::new().append(true).open(path);
    // One write(2), so that other tests' lines stay intact.
    file.unwrap().write_all(line.as_bytes()).unwrap();
}
