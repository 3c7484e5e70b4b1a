//! A policy in the making: fields that files and annotations gave so far, and where each came from.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use super::text::words;
use super::{
    Access, ByteSize, Capability, EphemeralDir, Filesystem, GuestPath, MountRule, Network,
    NetworkMode, Origin, Policy, PolicyName, Privileges, RootAccess, SyscallName, Syscalls,
};

words! {
    /// A field of a policy, by its place in the file. Its annotation is `dev.agentbox.` and the same words.
    Field {
        /// [`Filesystem::root`].
        FilesystemRoot = "filesystem.root",
        /// [`Filesystem::ephemeral`].
        FilesystemEphemeral = "filesystem.ephemeral",
        /// [`Filesystem::scratch`].
        FilesystemScratch = "filesystem.scratch",
        /// [`Filesystem::workspace`].
        FilesystemWorkspace = "filesystem.workspace",
        /// [`Filesystem::mounts`].
        FilesystemMounts = "filesystem.mounts",
        /// [`Filesystem::write`].
        FilesystemWrite = "filesystem.write",
        /// [`Network::mode`].
        NetworkMode = "network.mode",
        /// [`Syscalls::allow`].
        SyscallsAllow = "syscalls.allow",
        /// [`Syscalls::deny`].
        SyscallsDeny = "syscalls.deny",
        /// [`Privileges::capabilities`].
        PrivilegesCapabilities = "privileges.capabilities",
    }
}

/// Any part of a policy's fields: what one file or one container's annotations say.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Fields {
    pub filesystem: FilesystemFields,
    pub network: NetworkFields,
    pub syscalls: SyscallsFields,
    pub privileges: PrivilegesFields,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct FilesystemFields {
    pub root: Option<RootAccess>,
    pub ephemeral: Option<BTreeSet<EphemeralDir>>,
    pub scratch: Option<ByteSize>,
    pub workspace: Option<Access>,
    pub mounts: Option<MountRule>,
    pub write: Option<BTreeSet<GuestPath>>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct NetworkFields {
    pub mode: Option<NetworkMode>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct SyscallsFields {
    pub allow: Option<BTreeSet<SyscallName>>,
    pub deny: Option<BTreeSet<SyscallName>>,
}

#[derive(Debug, Default, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub(super) struct PrivilegesFields {
    pub capabilities: Option<BTreeSet<Capability>>,
}

/// Where each field of a policy came from.
pub(super) type Origins = BTreeMap<Field, Origin>;

impl Fields {
    /// Puts what `over` gives on top of what is here, and notes where it came from.
    pub fn overlay(
        &mut self,
        over: Fields,
        origins: &mut Origins,
        origin: impl Fn(Field) -> Origin,
    ) {
        // No `..`: a field added to the policy does not compile until it can be overridden.
        let Fields {
            filesystem:
                FilesystemFields {
                    root,
                    ephemeral,
                    scratch,
                    workspace,
                    mounts,
                    write,
                },
            network: NetworkFields { mode },
            syscalls: SyscallsFields { allow, deny },
            privileges: PrivilegesFields { capabilities },
        } = over;
        let mut note = |field| {
            origins.insert(field, origin(field));
        };
        let files = &mut self.filesystem;
        put(&mut files.root, root, Field::FilesystemRoot, &mut note);
        put(
            &mut files.ephemeral,
            ephemeral,
            Field::FilesystemEphemeral,
            &mut note,
        );
        put(
            &mut files.scratch,
            scratch,
            Field::FilesystemScratch,
            &mut note,
        );
        put(
            &mut files.workspace,
            workspace,
            Field::FilesystemWorkspace,
            &mut note,
        );
        put(
            &mut files.mounts,
            mounts,
            Field::FilesystemMounts,
            &mut note,
        );
        put(&mut files.write, write, Field::FilesystemWrite, &mut note);
        put(&mut self.network.mode, mode, Field::NetworkMode, &mut note);
        put(
            &mut self.syscalls.allow,
            allow,
            Field::SyscallsAllow,
            &mut note,
        );
        put(
            &mut self.syscalls.deny,
            deny,
            Field::SyscallsDeny,
            &mut note,
        );
        let slot = &mut self.privileges.capabilities;
        put(slot, capabilities, Field::PrivilegesCapabilities, &mut note);
    }

    /// The whole policy, or the first field that nobody gave.
    pub fn complete(self, name: PolicyName) -> Result<Policy, Field> {
        let Fields {
            filesystem,
            network,
            syscalls,
            privileges,
        } = self;
        Ok(Policy {
            name,
            filesystem: Filesystem {
                root: filesystem.root.ok_or(Field::FilesystemRoot)?,
                ephemeral: filesystem.ephemeral.ok_or(Field::FilesystemEphemeral)?,
                scratch: filesystem.scratch.ok_or(Field::FilesystemScratch)?,
                workspace: filesystem.workspace.ok_or(Field::FilesystemWorkspace)?,
                mounts: filesystem.mounts.ok_or(Field::FilesystemMounts)?,
                write: filesystem.write.ok_or(Field::FilesystemWrite)?,
            },
            network: Network {
                mode: network.mode.ok_or(Field::NetworkMode)?,
            },
            syscalls: Syscalls {
                allow: syscalls.allow.ok_or(Field::SyscallsAllow)?,
                deny: syscalls.deny.ok_or(Field::SyscallsDeny)?,
            },
            privileges: Privileges {
                capabilities: privileges
                    .capabilities
                    .ok_or(Field::PrivilegesCapabilities)?,
            },
        })
    }
}

impl From<Policy> for Fields {
    fn from(policy: Policy) -> Self {
        let Policy {
            name: _,
            filesystem:
                Filesystem {
                    root,
                    ephemeral,
                    scratch,
                    workspace,
                    mounts,
                    write,
                },
            network: Network { mode },
            syscalls: Syscalls { allow, deny },
            privileges: Privileges { capabilities },
        } = policy;
        Fields {
            filesystem: FilesystemFields {
                root: Some(root),
                ephemeral: Some(ephemeral),
                scratch: Some(scratch),
                workspace: Some(workspace),
                mounts: Some(mounts),
                write: Some(write),
            },
            network: NetworkFields { mode: Some(mode) },
            syscalls: SyscallsFields {
                allow: Some(allow),
                deny: Some(deny),
            },
            privileges: PrivilegesFields {
                capabilities: Some(capabilities),
            },
        }
    }
}

fn put<T>(slot: &mut Option<T>, value: Option<T>, field: Field, note: &mut impl FnMut(Field)) {
    if value.is_some() {
        *slot = value;
        note(field);
    }
}
