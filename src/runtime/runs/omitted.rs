//! What a container's caller requested and does not get, in the words of its log.

use crate::audit::WallName;
use crate::plan::{OmittedItem, text};
use crate::policy::{Field, Tool, typed_path};

/// Why an item is not granted, and the setting that would grant it. The container has not tried anything yet.
pub fn not_given(item: &OmittedItem, tool: Tool) -> (&'static str, Option<String>) {
    match item {
        OmittedItem::MountOptions {
            destination,
            options,
        } if options.iter().any(|option| option == "rw") => {
            let place = text::of(destination);
            // In a list a comma begins another path.
            let fits = Some(&*place).filter(|place| !place.contains(','));
            let typed = tool.adds(Field::FilesystemWrite, &[fits.unwrap_or("PATH")]);
            (
                "the caller requested it, and the policy gives less (filesystem.mounts, filesystem.write): writing there fails with \
             \"Read-only file system\", without a line here",
                Some(format!(
                    "{typed} where the policy's annotations may loosen filesystem.write, as under `standard`; elsewhere that field in \
                     a policy file of the node"
                )),
            )
        }
        OmittedItem::WholeHome { destination } => {
            let below = format!("{}/PROJECT", text::of(destination));
            let hint = match tool {
                Tool::Pod => format!("the container's workingDir: {below:?}"),
                _ => format!("--workdir {}", typed_path(&destination.join("PROJECT"))),
            };
            (
                "at most the working directory in a whole home is written: elsewhere writing fails with \"Read-only file system\", \
                 without a line here",
                Some(hint),
            )
        }
        OmittedItem::MountOptions { .. } => ("the caller requested it, and no mount gets it", None),
        OmittedItem::EngineMountOptions { .. } => (
            "the policy does not grant it; no attempt to write was made",
            None,
        ),
        OmittedItem::EngineCapabilities { .. } => (
            "the policy does not grant them; no attempt to use one was made",
            None,
        ),
        OmittedItem::HostNetwork => (
            "the caller requested it, and no container gets it",
            Some(tool.adds(Field::NetworkAllow, &["HOST"])),
        ),
        OmittedItem::Setting { .. }
        | OmittedItem::Capabilities { .. }
        | OmittedItem::Devices { .. }
        | OmittedItem::EveryDevice
        | OmittedItem::HiddenFile { .. }
        | OmittedItem::InWords(_) => (
            "the caller requested it, and the policy does not grant it",
            None,
        ),
    }
}

/// The wall that does not grant it.
pub fn wall_of(item: &OmittedItem) -> WallName {
    match item {
        OmittedItem::MountOptions { .. }
        | OmittedItem::EngineMountOptions { .. }
        | OmittedItem::WholeHome { .. }
        | OmittedItem::HiddenFile { .. } => WallName::Filesystem,
        OmittedItem::HostNetwork => WallName::Network,
        OmittedItem::Setting { .. }
        | OmittedItem::Capabilities { .. }
        | OmittedItem::EngineCapabilities { .. }
        | OmittedItem::Devices { .. }
        | OmittedItem::EveryDevice
        | OmittedItem::InWords(_) => WallName::Privileges,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A caller who asked for a writable mount learns that writes fail without a line, and the remedy.
    #[test]
    fn what_was_not_given_has_its_wall_and_a_hint_where_there_is_one() {
        let writable = OmittedItem::MountOptions {
            options: vec!["rw".to_owned()],
            destination: "/data".into(),
        };
        let (why, hint) = not_given(&writable, Tool::Annotating);
        assert!(why.contains("Read-only file system"), "{why}");
        let typed = "--annotation dev.agentbox.filesystem.write=+,/data where";
        assert!(hint.as_ref().unwrap().starts_with(typed), "{hint:?}");
        assert_eq!(wall_of(&writable), WallName::Filesystem);
        let words = OmittedItem::InWords("a thing".to_owned());
        let (why, hint) = not_given(&words, Tool::Engine);
        assert!(why.contains("the policy does not grant it") && hint.is_none());
        assert_eq!(wall_of(&words), WallName::Privileges);
        let (_, hint) = not_given(&OmittedItem::HostNetwork, Tool::Pod);
        assert_eq!(
            hint.as_deref(),
            Some("dev.agentbox.network.allow: \"+,HOST\"")
        );
        assert_eq!(wall_of(&OmittedItem::HostNetwork), WallName::Network);
    }
}
