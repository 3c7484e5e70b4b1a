//! PURE. The layers of an image as the engine stacked them, from the options of its overlay in /proc/self/mountinfo.
//!
//! The kernel finds no file of an overlay by a handle. So in an overlay over an overlay a written file loses its other
//! names: hard links break, and `cp` over one empties the file. The engine's own layers need one overlay only.

use std::path::PathBuf;

use super::error::PlanError;
use super::filesystem::{EphemeralContent, FilesystemPlan, ImageBase};
use crate::kernel::mountinfo::{MountLine, path, split_layers};
use crate::policy::{Policy, RootAccess};

/// The layers of an overlay, top layer first.
#[derive(Debug, PartialEq, Eq)]
pub struct Stack {
    /// The directories as passed to the kernel.
    pub directories: Vec<PathBuf>,
    /// Whether files in them may have their content in a lower layer (`metacopy`).
    pub metacopy: bool,
}

impl Stack {
    /// The layers of this mount, or why another overlay of them would not show the same: an unknown option may change
    /// their meaning.
    pub fn of(line: &MountLine) -> Result<Self, String> {
        let (mut upper, mut lower, mut metacopy) = (Vec::new(), Vec::new(), false);
        for (name, value) in line.file_system_options() {
            let name = String::from_utf8_lossy(&name).into_owned();
            let has_value = value.is_some();
            let value = value.unwrap_or_default();
            match name.as_str() {
                "lowerdir" if has_no_data_layers(&value) => lower.extend(split_layers(&value)),
                "lowerdir+" => lower.push(path(&value)),
                // Kernels differ in how they read a backslash here.
                "upperdir" if !value.contains(&b'\\') => upper.push(path(&value)),
                "metacopy" => metacopy = value == b"on",
                // These affect what is written, where and how, not what is seen.
                "workdir" | "index" | "nfs_export" | "xino" | "uuid" | "redirect_dir" | "fsync"
                    if has_value => {}
                "rw" | "ro" | "volatile" | "default_permissions" | "seclabel" if !has_value => {}
                _ => return Err(format!("its overlay has the option {name:?}")),
            }
        }
        let directories: Vec<PathBuf> = upper.into_iter().chain(lower).collect();
        // For long names engines use relative ones, from a directory that only they know.
        match directories.iter().find(|d| !d.is_absolute()) {
            Some(_) => Err("its overlay names layers from a directory that is not known".into()),
            None if directories.is_empty() => Err("its overlay has no layers".into()),
            None => Ok(Self {
                directories,
                metacopy,
            }),
        }
    }
}

/// Two colons start data-only layers; a backslash before a colon makes it part of a name.
fn has_no_data_layers(value: &[u8]) -> bool {
    !value.windows(2).any(|pair| pair == b"::")
}

/// The longest value in bytes that the kernel takes for a new file system (fsconfig(2)), without the final NUL.
const LONGEST_VALUE: usize = 255;

/// Short names, to fit as many as possible into one value; before Linux 6.5, `lowerdir=` must be one value.
pub fn short_name(index: usize) -> String {
    const DIGITS: &[u8; 62] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
    let digit = |n: usize| char::from(DIGITS[n % DIGITS.len()]);
    match index.checked_sub(DIGITS.len()) {
        None => digit(index).to_string(),
        Some(rest) => format!("{}{}", digit(rest / DIGITS.len()), digit(rest)),
    }
}

/// `lowerdir=` for this many layers with short names; `None` if it is longer than the kernel takes.
pub fn in_one_value(layers: usize) -> Option<String> {
    let names: Vec<String> = (0..layers).map(short_name).collect();
    Some(names.join(":")).filter(|value| value.len() <= LONGEST_VALUE)
}

impl FilesystemPlan {
    /// Whether any private directory starts with the image's files.
    pub fn lies_over_image(&self) -> bool {
        let mut dirs = self.ephemeral.iter();
        self.root == RootAccess::Ephemeral || dirs.any(|dir| dir.content == EphemeralContent::Image)
    }

    /// Records what was found below. An ephemeral root that the policy named must not break hard links. One in place of
    /// the engine's root may, and records why.
    pub fn lie_over(&mut self, policy: &Policy, found: ImageBase) -> Result<(), PlanError> {
        let named = policy.filesystem.root == RootAccess::Ephemeral;
        if let (RootAccess::Ephemeral, true, ImageBase::AsItIs(why)) = (self.root, named, &found) {
            return Err(PlanError::LinksApart {
                policy: policy.name.to_string(),
                why: why.clone(),
            });
        }
        self.image_below = Some(found);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::mountinfo::MountTable;

    fn of(options: &str) -> Result<Stack, String> {
        let line = format!("7 1 0:60 / /r rw - overlay overlay {options}\n");
        Stack::of(&MountTable::parse(line.as_bytes()).mounts()[0])
    }

    #[test]
    fn the_upper_directory_is_the_top_layer_and_the_order_stays() {
        for (options, expect) in [
            // Docker and containerd, podman, and what kernels since 6.8 report for layers that were added one by one.
            (
                "rw,lowerdir=/d/l/B:/d/l/A,upperdir=/d/x/diff,workdir=/d/x/work,index=off,nfs_export=off",
                vec!["/d/x/diff", "/d/l/B", "/d/l/A"],
            ),
            (
                "ro,lowerdir+=/a:b,lowerdir+=/c,volatile",
                vec!["/a:b", "/c"],
            ),
            ("rw,lowerdir=/a\\134:b:/c\\054d", vec!["/a:b", "/c,d"]),
        ] {
            let expect: Vec<PathBuf> = expect.into_iter().map(PathBuf::from).collect();
            assert_eq!(of(options).unwrap().directories, expect, "{options}");
        }
        assert!(
            of("rw,lowerdir=/a,metacopy=on,redirect_dir=on")
                .unwrap()
                .metacopy
        );
    }

    #[test]
    fn layers_that_another_overlay_may_show_differently_are_refused() {
        for options in [
            "rw",
            // Whiteouts and opaque directories in other attributes: what they hide would become visible.
            "rw,lowerdir=/a:/b,upperdir=/u,userxattr",
            "rw,lowerdir=/a::/data",
            "rw,lowerdir=/a,datadir+=/data",
            "rw,lowerdir=/a,verity=on",
            "rw,lowerdir=l/A:l/B,upperdir=x/diff,workdir=x/work",
            "rw,lowerdir=/a,upperdir=/u\\134:x",
            "rw,lowerdir=/a,context=\"u:r:t:s0:c1,lowerdir+=/etc,c2\"",
            "rw,lowerdir=/a,index",
            "rw,lowerdir=/a,of-a-later-kernel=on",
        ] {
            assert!(of(options).is_err(), "{options}");
        }
    }

    #[test]
    fn names_are_short_and_distinct() {
        let names: std::collections::BTreeSet<String> = (0..500).map(short_name).collect();
        assert_eq!(names.len(), 500);
        assert_eq!(in_one_value(3).unwrap(), "0:1:2");
        // 62 of one letter, the rest of two.
        assert!(in_one_value(106).is_some() && in_one_value(107).is_none());
    }

    #[test]
    fn a_root_that_breaks_hard_links_is_refused_and_a_private_directory_is_not() {
        let mut plan = super::super::tests::sample();
        let mut policy = super::super::tests::sample_policy();
        let found = || ImageBase::AsItIs("no handles".to_owned());
        plan.filesystem.root = RootAccess::Ephemeral;
        // Instead of an engine's layer, which is missing.
        assert_eq!(policy.filesystem.root, RootAccess::Engine);
        assert!(plan.filesystem.lie_over(&policy, found()).is_ok());
        policy.filesystem.root = RootAccess::Ephemeral;
        assert!(plan.filesystem.lie_over(&policy, found()).is_err());
        assert!(plan.filesystem.lie_over(&policy, ImageBase::Layers).is_ok());
        plan.filesystem.root = RootAccess::ReadOnly;
        assert!(plan.filesystem.lie_over(&policy, found()).is_ok());
    }
}
