//! Every mount option in `features` takes effect, or has none by definition. Others are refused.

use super::*;

/// How mountinfo shows an option (proc_pid_mountinfo(5)).
enum Effect {
    /// This word, on the mount.
    Shows(&'static str),
    /// This word, on the mount and on the mount below it.
    ShowsBelow(&'static str),
    /// Without the second word, which the first option would set.
    Hides(&'static str, &'static str),
    /// The same, also on the mount below.
    HidesBelow(&'static str, &'static str),
    /// Accepted without an effect, like by runc.
    Accepted,
    /// Tested elsewhere.
    Elsewhere,
}

/// The mounts that an option applies to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum On {
    Both,
    Bind,
    Tmpfs,
}

const EFFECTS: &[(&str, On, Effect)] = &{
    use Effect::*;
    use On::*;
    [
        ("acl", Both, Accepted),
        ("async", Tmpfs, Hides("sync", "sync")),
        ("atime", Both, Hides("noatime", "noatime")),
        // `ids_of_a_bind_mount_are_mapped`
        ("idmap", Bind, Elsewhere),
        ("ridmap", Bind, Elsewhere),
        // `a_tmpfs_begins_with_what_it_covers_where_it_is_asked_to`
        ("tmpcopyup", Tmpfs, Elsewhere),
        ("bind", Bind, Accepted),
        ("rbind", Bind, Accepted),
        ("defaults", Both, Accepted),
        ("dev", Both, Hides("nodev", "nodev")),
        ("diratime", Both, Hides("nodiratime", "nodiratime")),
        ("dirsync", Tmpfs, Shows("dirsync")),
        ("exec", Both, Hides("noexec", "noexec")),
        ("iversion", Both, Accepted),
        ("lazytime", Tmpfs, Shows("lazytime")),
        ("loud", Both, Accepted),
        ("mand", Tmpfs, Shows("mand")),
        ("noacl", Both, Accepted),
        ("noatime", Both, Shows("noatime")),
        ("nodev", Both, Shows("nodev")),
        ("nodiratime", Both, Shows("nodiratime")),
        ("noexec", Both, Shows("noexec")),
        ("noiversion", Both, Accepted),
        ("nolazytime", Tmpfs, Hides("lazytime", "lazytime")),
        ("nomand", Tmpfs, Hides("mand", "mand")),
        ("norelatime", Both, Accepted),
        ("nostrictatime", Bind, Accepted),
        ("nosuid", Both, Shows("nosuid")),
        ("nosymfollow", Both, Shows("nosymfollow")),
        ("private", Bind, Hides("slave", "master")),
        ("ratime", Both, HidesBelow("rnoatime", "noatime")),
        ("rdev", Both, HidesBelow("rnodev", "nodev")),
        ("rdiratime", Both, HidesBelow("rnodiratime", "nodiratime")),
        ("relatime", Both, Hides("noatime", "noatime")),
        ("rexec", Both, HidesBelow("rnoexec", "noexec")),
        ("rnoatime", Both, ShowsBelow("noatime")),
        ("rnodev", Both, ShowsBelow("nodev")),
        ("rnodiratime", Both, ShowsBelow("nodiratime")),
        ("rnoexec", Both, ShowsBelow("noexec")),
        ("rnorelatime", Both, Accepted),
        ("rnostrictatime", Bind, Accepted),
        ("rnosuid", Both, ShowsBelow("nosuid")),
        ("rnosymfollow", Both, ShowsBelow("nosymfollow")),
        ("ro", Both, Shows("ro")),
        ("rprivate", Bind, HidesBelow("rslave", "master")),
        ("rrelatime", Both, HidesBelow("rnoatime", "noatime")),
        ("rro", Both, ShowsBelow("ro")),
        ("rrw", Both, HidesBelow("rro", "ro")),
        ("rshared", Both, ShowsBelow("shared")),
        ("rslave", Bind, ShowsBelow("master")),
        ("rstrictatime", Both, HidesBelow("rrelatime", "relatime")),
        ("rsuid", Both, HidesBelow("rnosuid", "nosuid")),
        (
            "rsymfollow",
            Both,
            HidesBelow("rnosymfollow", "nosymfollow"),
        ),
        ("runbindable", Both, ShowsBelow("unbindable")),
        ("rw", Both, Hides("ro", "ro")),
        ("shared", Both, Shows("shared")),
        ("silent", Both, Accepted),
        ("slave", Bind, Shows("master")),
        ("strictatime", Both, Hides("relatime", "relatime")),
        ("suid", Both, Hides("nosuid", "nosuid")),
        ("symfollow", Both, Hides("nosymfollow", "nosymfollow")),
        ("sync", Tmpfs, Shows("sync")),
        ("unbindable", Both, Shows("unbindable")),
    ]
};

/// The mountinfo lines of /mnt and below, in words; `None` if the container was refused.
fn lines(on: On, options: &[&str]) -> Option<Vec<Vec<String>>> {
    let mut t = Trial::new(Runtime::Unconfined);
    let mut held = Vec::new();
    if on == On::Bind {
        let source = t.scratch.path("source");
        held.push(HostMount::new(&source, "--make-rshared"));
        held.push(HostMount::new(&format!("{source}/below"), "--make-shared"));
        let options = [&["rbind"], options].concat();
        mount(&mut t, "/mnt", &source, "bind", &options);
    } else {
        mount(&mut t, "/mnt", "tmpfs", "tmpfs", options);
    }
    let script = "grep ' /mnt' /proc/self/mountinfo | cut -d' ' -f6-";
    let text = outcome(&mut t, script);
    drop(held.pop());
    if text == "refused" {
        return None;
    }
    let words = |line: &str| {
        let words = line.split([' ', ',', ':']).filter(|w| !w.is_empty());
        words.map(str::to_owned).collect()
    };
    Some(text.lines().map(words).collect())
}

/// The fault of an option on one kind of mount, if any.
fn wrong(option: &str, on: On, effect: &Effect) -> Option<String> {
    let (before, word, present, below) = match effect {
        Effect::Shows(word) => (None, Some(word), true, false),
        Effect::ShowsBelow(word) => (None, Some(word), true, true),
        Effect::Hides(other, word) => (Some(other), Some(word), false, false),
        Effect::HidesBelow(other, word) => (Some(other), Some(word), false, true),
        Effect::Accepted => (None, None, true, false),
        Effect::Elsewhere => return None,
    };
    let options: Vec<&str> = before.into_iter().copied().chain([option]).collect();
    let Some(lines) = lines(on, &options) else {
        return Some(format!("{options:?} is refused"));
    };
    let expected = if on == On::Bind { 2 } else { 1 };
    let judged = lines.iter().take(if below { expected } else { 1 });
    let has = |line: &Vec<String>| word.is_none_or(|w| line.iter().any(|l| l == w) == present);
    let good = lines.len() == expected && judged.into_iter().all(has);
    (!good).then(|| format!("{options:?}: {lines:?}"))
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn every_mount_option_of_features_takes_effect() {
    let features = run(&crate::direct::program(), &["features"]).ok();
    let document: Value = serde_json::from_str(&features).unwrap();
    let listed: Vec<&str> = document["mountOptions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|o| o.as_str().unwrap())
        .collect();
    let mut tried: Vec<&str> = EFFECTS.iter().map(|(option, ..)| *option).collect();
    tried.sort_unstable();
    assert_eq!(listed, tried);
    let mut problems = Vec::new();
    for (option, on, effect) in EFFECTS {
        if *on != On::Tmpfs {
            problems.extend(wrong(option, On::Bind, effect));
        }
        if *on != On::Bind {
            problems.extend(wrong(option, On::Tmpfs, effect));
        }
    }
    assert!(problems.is_empty(), "{}", problems.join("\n"));
}

#[test]
#[ignore = "needs a rig: hack/test"]
fn options_that_are_invalid_for_a_new_mount_are_refused() {
    for option in ["bogus", "bogus=1", "remount", "idmap", "mode=no"] {
        let text = same(|t| {
            mount(t, "/mnt", "tmpfs", "tmpfs", &[option]);
            outcome(t, "true")
        });
        assert_eq!(text, "refused", "{option}");
    }
    let text = same(|t| {
        mount(t, "/mnt", "/srv", "bind", &["bind", "remount"]);
        outcome(t, "true")
    });
    assert_eq!(text, "refused");
}
