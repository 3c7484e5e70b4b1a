//! Files: the command cannot read, write, link, move or change files outside, by any name.

use std::process::Command;

use super::Place;
use crate::command::finish;
use crate::direct::program;

const SECRET: &str = "a key of the user";

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_nothing_outside_is_read_by_any_name() {
    let place = Place::new();
    let key = place.scratch.file("home/.ssh/id_ed25519", SECRET);
    place.scratch.file("home/other/list", "x");
    let script = format!(
        r"
key = '{key}'
attempt('by name', lambda: open(key).read())
attempt('password hashes', lambda: open('/etc/shadow').read())
attempt('by a link', lambda: (os.symlink(key, 'link'), open('link').read()))
os.path.lexists('link') and os.unlink('link')
attempt('by dots', lambda: open('../.ssh/id_ed25519').read())
def by_directory():
    os.chdir('..')
    try:
        open('.ssh/id_ed25519').read()
    finally:
        os.chdir('project')
attempt('by chdir', by_directory)
def by_descriptor():
    fd = os.open(key, os.O_PATH)
    open('/proc/self/fd/%d' % fd).read()
attempt('by O_PATH', by_descriptor)
attempt('by the root of proc', lambda: open('/proc/self/root' + key).read())
attempt('by its directory', lambda: os.listdir('../other'))
def hard_link():
    os.link(key, 'hard')
    try:
        open('hard').read()
    finally:
        os.unlink('hard')
attempt('by a hard link', hard_link)
def moved():
    os.rename(key, 'moved')
    open('moved').read()
    os.rename('moved', key)
attempt('moved here', moved)
attempt('exchanged', lambda: (open('mine', 'w').close(), syscall(316, -100, key.encode(), -100, b'mine', 2), syscall(316, -100, key.encode(), -100, b'mine', 2)))
attempt('of all temporary files', lambda: os.listdir('/tmp'))
attempt('of shared memory', lambda: os.listdir('/dev/shm'))
"
    );
    place
        .attempts(&script)
        .all_fail_with(&["EACCES", "EXDEV", "EPERM"], 13);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_nothing_outside_is_written_or_changed() {
    let place = Place::new();
    let file = place.scratch.file("home/other/file", "theirs");
    let script = format!(
        r"
file, beside = '{file}', '{file}-made'
attempt('append', lambda: open(file, 'a').write('x'))
attempt('truncate', lambda: os.truncate(file, 3))
attempt('make', lambda: open(beside, 'w').close())
attempt('make a directory', lambda: os.mkdir(beside + '-d'))
attempt('make a FIFO', lambda: os.mkfifo(beside + '-f'))
attempt('make a link', lambda: os.symlink('x', beside + '-l'))
attempt('move there', lambda: (open('own', 'w').close(), os.rename('own', beside + '-m')))
attempt('link there', lambda: (open('own2', 'w').close(), os.link('own2', beside + '-h')))
attempt('mode', lambda: os.chmod(file, 0o600))
attempt('mode by dots', lambda: os.chmod('../other/file', 0o600))
attempt('mode by a link', lambda: (os.path.lexists('out') or os.symlink(file, 'out'), os.chmod('out', 0o600)))
attempt('owner', lambda: os.chown(file, os.getuid(), os.getgid()))
attempt('owner of a link', lambda: os.lchown(file, os.getuid(), os.getgid()))
attempt('times', lambda: os.utime(file, (0, 0)))
attempt('old times', lambda: syscall(132, file.encode(), None))
attempt('mode by O_PATH', lambda: os.chmod('/proc/self/fd/%d' % os.open(file, os.O_PATH), 0o600))
attempt('mode by the root of proc', lambda: os.chmod('/proc/self/root' + file, 0o600))
attempt('mode from a directory', lambda: os.chmod('file', 0o600, dir_fd=os.open('../other', os.O_PATH)))
attempt('mode of a system file that is open', lambda: os.fchmod(os.open('/etc/passwd', os.O_RDONLY), 0o644))
attempt('remove', lambda: os.unlink(file))
"
    );
    // The walled run comes first: the control's attacks do change the file.
    let seen = place.attempts(&script);
    seen.all_fail_with(&["EACCES", "EXDEV", "EPERM", "ENOENT", "ELOOP"], 20);
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_files_of_the_project_are_changed_as_without_walls() {
    let place = Place::new();
    let script = "set -e; echo x >a; chmod 750 a; stat -c %a a; touch -d 2001-02-03 a; stat -c %y a | cut -c1-10
                  chown $(id -u):$(id -g) a; chown -h $(id -u) a; ln -s a l; touch -h -d 2002-01-01 l; stat -c %y l | cut -c1-4
                  mkdir -p d/e; cp -pr d d2; mv d2/e d/f; ln a d/hard; (cd d; chmod 700 ../a; python3 -c '
import os
fd = os.open(\"hard\", os.O_RDONLY); os.fchmod(fd, 0o640); os.utime(fd, (0, 0)); os.utime(\"hard\", (1, 2))
os.chmod(\"/proc/self/fd/%d\" % fd, 0o644)
print(oct(os.stat(\"hard\").st_mode), os.stat(\"hard\").st_mtime)'); tar cf t.tar a d; mkdir x; tar xf t.tar -C x
                  echo y >\"$TMPDIR/t\"; chmod 600 \"$TMPDIR/t\"; echo z >~/z; cat ~/z; rm -r d x t.tar l a";
    let seen = place.shell(script).ok();
    assert_eq!(seen, "750\n2001-02-03\n2002\n0o100644 2.0\nz\n");
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_home_and_tmpdir_are_private_and_end_with_the_run() {
    let place = Place::new();
    let other = std::env::temp_dir().join(format!("agentbox-wrap-other-{}", std::process::id()));
    std::fs::create_dir(&other).unwrap();
    std::fs::write(other.join("x"), "theirs").unwrap();
    let seen = place.shell(&format!(
        "echo $HOME; echo $TMPDIR; mkdir ~/a; chmod 000 ~/a; cat {}/x || echo refused",
        other.display()
    ));
    let seen = seen.ok();
    let mut lines = seen.lines();
    for _ in 0..2 {
        let own = std::path::Path::new(lines.next().unwrap());
        assert!(own.starts_with(std::env::temp_dir()), "{own:?}");
        assert!(!own.exists() && !own.parent().unwrap().exists(), "{own:?}");
    }
    assert_eq!(lines.next(), Some("refused"));
    // The control: without walls it can be read.
    assert!(std::fs::read_to_string(other.join("x")).is_ok());
    std::fs::remove_dir_all(other).unwrap();
}

#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_refuses_what_it_cannot_hide() {
    let place = Place::new();
    assert_eq!(place.shell("true").code, 0);
    place
        .scratch
        .file("home/project/.netrc", "machine a login b password KEY");
    let refused = place.shell("cat .netrc");
    assert_ne!(refused.code, 0, "{refused}");
    assert!(!refused.stdout.contains("KEY"), "{refused}");
    assert!(
        refused.stderr.contains(".netrc") && refused.stderr.contains("cannot enforce this"),
        "{refused}"
    );
}

/// A work tree's main repository is read-only, except for the parts that a commit adds to.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_commits_in_a_work_tree_and_refuses_to_hide() {
    let place = Place::new();
    let main = place.scratch.dir("home/main");
    let tree = place.scratch.path("home/tree");
    let script = format!(
        "cd {main} && git init -q && git -c user.name=a -c user.email=a@example.test commit -q --allow-empty -m begin \
         && git worktree add -q {tree}"
    );
    finish(Command::new("bash").args(["-c", &script])).ok();
    let script = format!(
        "git -c user.name=a -c user.email=a@example.test commit -q --allow-empty -m inside && git log -1 --format=%s; \
         for f in commondir config hooks/post-commit; do echo x >{main}/.git/$f && echo planted; done; true"
    );
    let mut wrap = place.command(&["bash", "-c", &script]);
    let seen = finish(wrap.current_dir(&tree));
    assert_eq!(seen.stdout, "inside\n", "{seen}");
    let hidden = place.scratch.file("home/project/hidden", "secret");
    let mut wrap = Command::new(program());
    wrap.args([
        "wrap", "--walls", "landlock", "--hide", &hidden, "--", "cat", &hidden,
    ]);
    wrap.current_dir(&place.project);
    let said = finish(&mut wrap).failed();
    assert!(said.contains("hidden or read-only"), "{said}");
    let mut wrap = place.command(&["true"]);
    let temporary = place.scratch.dir("home/project/tmp");
    let said = finish(wrap.env("TMPDIR", temporary)).failed();
    assert!(said.contains("set TMPDIR to another"), "{said}");
}

/// A readable directory with a credential: all else in it can be read, and the credential by no name.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_reads_what_lies_beside_a_credential_and_not_the_credential() {
    let mut place = Place::new();
    place.policy = Some("permissive".to_owned());
    let (scratch, project) = (&place.scratch, &place.project);
    let home = scratch.path("home");
    let key = scratch.file("home/.ssh/id_ed25519", SECRET);
    let token = scratch.file("home/.config/gh/hosts.yml", SECRET);
    for name in [
        ".config/tool/settings",
        "notes",
        ".ssh-notes/x",
        "tools/lib/x",
    ] {
        scratch.file(&format!("home/{name}"), name);
    }
    let tool = scratch.file("home/tools/bin/mine", "#!/bin/sh\necho mine\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(tool, mode).unwrap();
    let tools = scratch.file("home/tools/.netrc", SECRET);
    let wrap = |command: &[&str]| {
        let mut wrap = place.command(command);
        wrap.env("PATH", format!("{home}/tools/bin:/usr/bin:/bin"));
        finish(&mut wrap)
    };
    let reads = format!(
        "cat {home}/.config/tool/settings {home}/notes {home}/.ssh-notes/x; ls {home}/.config/tool; mine; echo x >made; \
             echo x >{home}/notes || echo no; touch {home}/new || echo no"
    );
    let seen = wrap(&["bash", "-c", &reads]);
    assert_eq!(
        seen.stdout, ".config/tool/settingsnotes.ssh-notes/xsettings\nmine\nno\nno\n",
        "{seen}"
    );
    let attacks = format!(
        r"{prelude}
for key in ('{key}', '{token}', '{tools}'):
    attempt('name' + key, lambda: open(key).read())
    attempt('root' + key, lambda: open('/proc/self/root' + key).read())
    attempt('listed' + key, lambda: os.listdir(os.path.dirname(key)))
    def by_descriptor():
        fd = os.open(os.path.dirname(key), os.O_PATH)
        open(os.open(os.path.basename(key), os.O_RDONLY, dir_fd=fd)).read()
    attempt('descriptor' + key, by_descriptor)
    def moved():
        os.rename(os.path.dirname(key), '{project}/moved')
        os.rename('{project}/moved', os.path.dirname(key))
    attempt('moved' + key, moved)
    def hard():
        os.link(key, '{project}/hard')
        try:
            open('{project}/hard').read()
        finally:
            os.unlink('{project}/hard')
    attempt('hard' + key, hard)
",
        prelude = super::PRELUDE
    );
    let walled = super::outcomes(&wrap(&["python3", "-c", &attacks]).ok());
    let control = finish(
        Command::new("python3")
            .args(["-c", &attacks])
            .current_dir(project),
    );
    super::Outcomes {
        walled,
        control: super::outcomes(&control.ok()),
    }
    .all_fail_with(&["EACCES", "EXDEV", "EPERM"], 18);
}

/// Landlock's rules go through mount points, and nothing has searched what is mounted there.
#[test]
#[ignore = "needs the rig: hack/test"]
fn landlock_shows_no_mount_below_a_directory_that_is_read() {
    let place = Place::new();
    let vault = place.scratch.dir("home/tools/vault");
    let tools = place
        .scratch
        .file("home/tools/plain", "plain\n")
        .replace("/plain", "");
    let root = place.scratch.dir("home/project/root/proc");
    let program = program();
    let wrapped = |mounts: &str, shown: &str, command: &str| {
        let script = format!(
            "{mounts} && cd {project} && {program} wrap --quiet --walls landlock --read {shown} -- sh -c '{command}'",
            project = place.project
        );
        finish(Command::new("unshare").args(["-m", "bash", "-c", &script]))
    };
    let vaulted = format!("mount -t tmpfs none {vault} && echo secret >{vault}/key");
    let command = format!("cat {tools}/plain; cat {vault}/key");
    let seen = wrapped(&vaulted, &tools, &command);
    assert_eq!(seen.stdout, "plain\n", "{seen}");
    let seen = wrapped(&vaulted, &vault, &format!("cat {vault}/key"));
    assert_eq!(seen.stdout, "secret\n", "the control: {seen}");
    // Named by itself, it is shown beside the directory above it.
    let both = format!("{tools} --read {vault}");
    let seen = wrapped(&vaulted, &both, &command).ok();
    assert_eq!(seen, "plain\nsecret\n");
    // What is the kernel's may not be written.
    let refused = wrapped(&format!("mount -t proc none {root}"), &tools, "true").failed();
    assert!(refused.contains("proc is mounted at"), "{refused}");
}
