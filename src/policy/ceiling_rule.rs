//! How a ceiling limits a field: which part of a value exceeds it, and which part is left. Each rule is a type; the
//! table of fields names one for each field.

use std::collections::BTreeSet;
use std::fmt;

use super::bound::{Amount, Bound};
use super::{
    ConnectService, EphemeralDir, GuestPath, InboundPort, MountRule, OnUnknown, Policy, RootAccess,
    SshKey, Switch,
};
use crate::text::few;

type GuestPaths = BTreeSet<GuestPath>;
type EphemeralDirs = BTreeSet<EphemeralDir>;

/// The part of a value that exceeds the ceiling's.
pub(super) struct Excess {
    /// The requested value; of a set, only the items beyond the ceiling.
    pub asked: String,
    /// The value that the ceiling allows.
    pub allowed: String,
    /// The value that the ceiling needs.
    pub needed: NeededValue,
}

/// The value of a ceiling's field that allows what was requested.
pub(super) enum NeededValue {
    /// The requested word or number.
    Same,
    /// The ceiling's list with these items.
    With(Vec<String>),
    /// No value of this field alone.
    Other,
}

/// A rule for values of type `T`.
pub(super) trait CeilingRule<T> {
    /// The values within the ceiling, for docs/policy.md.
    #[cfg(test)]
    const WITHIN: &'static str;

    /// Whether the ceiling's value also narrows a policy that was chosen by name. True for denials, which every policy
    /// below a ceiling gets, and for lists that allow nothing by themselves.
    const NARROWS_CHOSEN: bool = false;

    /// The part of `asked` that exceeds `most`, the ceiling's value.
    fn excess(asked: &T, most: &T, ceiling: &Policy) -> Option<Excess>;

    /// The part of `own` that is within `most`, the ceiling's value.
    fn narrowed(own: &T, most: &T, ceiling: &Policy) -> T;
}

/// Values are ordered from least to most.
pub(super) struct AtMost;

impl<T: Ord + Clone + fmt::Display> CeilingRule<T> for AtMost {
    #[cfg(test)]
    const WITHIN: &'static str = "the same or tighter";

    fn excess(asked: &T, most: &T, _: &Policy) -> Option<Excess> {
        (asked > most).then(|| Excess {
            asked: asked.to_string(),
            allowed: format!("at most {most}"),
            needed: NeededValue::Same,
        })
    }

    fn narrowed(own: &T, most: &T, _: &Policy) -> T {
        own.min(most).clone()
    }
}

/// A time limit of a ceiling holds for every policy below it, also for one that was chosen by name.
pub(super) struct TimeCeiling;

impl<T: Ord + Clone + fmt::Display> CeilingRule<T> for TimeCeiling {
    #[cfg(test)]
    const WITHIN: &'static str = "the same or less; a longer one of a policy is shortened";

    const NARROWS_CHOSEN: bool = true;

    fn excess(asked: &T, most: &T, ceiling: &Policy) -> Option<Excess> {
        AtMost::excess(asked, most, ceiling)
    }

    fn narrowed(own: &T, most: &T, ceiling: &Policy) -> T {
        AtMost::narrowed(own, most, ceiling)
    }
}

/// What a ceiling turns off is off for every policy below it, also for one that was chosen by name.
pub(super) struct SwitchCeiling;

impl CeilingRule<Switch> for SwitchCeiling {
    #[cfg(test)]
    const WITHIN: &'static str = "`off` turns it off";

    const NARROWS_CHOSEN: bool = true;

    fn excess(asked: &Switch, most: &Switch, ceiling: &Policy) -> Option<Excess> {
        AtMost::excess(asked, most, ceiling)
    }

    fn narrowed(own: &Switch, most: &Switch, ceiling: &Policy) -> Switch {
        AtMost::narrowed(own, most, ceiling)
    }
}

/// The reverse: a larger value, such as a longer pause, is tighter.
pub(super) struct AtLeast;

impl<T: Ord + Clone + fmt::Display> CeilingRule<T> for AtLeast {
    #[cfg(test)]
    const WITHIN: &'static str = "the same or more";

    const NARROWS_CHOSEN: bool = true;

    fn excess(asked: &T, least: &T, _: &Policy) -> Option<Excess> {
        (asked < least).then(|| Excess {
            asked: asked.to_string(),
            allowed: format!("at least {least}"),
            needed: NeededValue::Same,
        })
    }

    fn narrowed(own: &T, least: &T, _: &Policy) -> T {
        own.max(least).clone()
    }
}

/// A resource of the node that a container uses.
pub(super) struct WithinBound;

impl<T: Amount> CeilingRule<Bound<T>> for WithinBound {
    #[cfg(test)]
    const WITHIN: &'static str = "the same or less; of a share and a number the smaller applies";

    fn excess(asked: &Bound<T>, most: &Bound<T>, _: &Policy) -> Option<Excess> {
        (!asked.is_within(most)).then(|| Excess {
            asked: asked.to_string(),
            allowed: format!("at most {most}"),
            needed: NeededValue::Same,
        })
    }

    fn narrowed(own: &Bound<T>, most: &Bound<T>, _: &Policy) -> Bound<T> {
        match own.is_within(most) {
            true => *own,
            false => *most,
        }
    }
}

/// The field grants the workload nothing, so no ceiling limits it.
pub(super) struct NoCeiling;

impl<T: Clone> CeilingRule<T> for NoCeiling {
    #[cfg(test)]
    const WITHIN: &'static str = "anything: the workload gains nothing";

    fn excess(_: &T, _: &T, _: &Policy) -> Option<Excess> {
        None
    }

    fn narrowed(own: &T, _: &T, _: &Policy) -> T {
        own.clone()
    }
}

/// Whether to wait for approval. This grants the workload nothing: the operator decides within every ceiling.
pub(super) struct ApprovalCeiling;

impl CeilingRule<OnUnknown> for ApprovalCeiling {
    #[cfg(test)]
    const WITHIN: &'static str =
        "anything; but `ask` is an error if the ceiling's `network.limit` is empty";

    fn excess(_: &OnUnknown, _: &OnUnknown, _: &Policy) -> Option<Excess> {
        None
    }

    fn narrowed(own: &OnUnknown, _: &OnUnknown, ceiling: &Policy) -> OnUnknown {
        match ceiling.network.limit.is_empty() {
            true => OnUnknown::Deny,
            false => *own,
        }
    }
}

/// A list of allowed items.
pub(super) struct PartOf;

impl<T: Ord + Clone + fmt::Display> CeilingRule<BTreeSet<T>> for PartOf {
    #[cfg(test)]
    const WITHIN: &'static str = "part of the ceiling's list";

    fn excess(asked: &BTreeSet<T>, most: &BTreeSet<T>, _: &Policy) -> Option<Excess> {
        (!asked.is_subset(most)).then(|| Excess {
            asked: join(asked.difference(most)),
            allowed: join(most),
            needed: NeededValue::With(asked.difference(most).map(T::to_string).collect()),
        })
    }

    fn narrowed(own: &BTreeSet<T>, most: &BTreeSet<T>, _: &Policy) -> BTreeSet<T> {
        own.intersection(most).cloned().collect()
    }
}

/// A list of denied items: a policy may add a denial, but not leave one out.
pub(super) struct AllOf;

impl<T: Ord + Clone + fmt::Display> CeilingRule<BTreeSet<T>> for AllOf {
    #[cfg(test)]
    const WITHIN: &'static str = "at least the ceiling's list";

    const NARROWS_CHOSEN: bool = true;

    fn excess(asked: &BTreeSet<T>, denied: &BTreeSet<T>, _: &Policy) -> Option<Excess> {
        (!asked.is_superset(denied)).then(|| Excess {
            asked: format!("a list without {}", join(denied.difference(asked))),
            allowed: format!("a list with {}", join(denied)),
            needed: NeededValue::Other,
        })
    }

    fn narrowed(own: &BTreeSet<T>, denied: &BTreeSet<T>, _: &Policy) -> BTreeSet<T> {
        own.union(denied).cloned().collect()
    }
}

/// Directories of the root. If all of the root may be written, any directory in it may.
pub(super) struct PartOfRoot;

impl CeilingRule<EphemeralDirs> for PartOfRoot {
    #[cfg(test)]
    const WITHIN: &'static str = "also anything unless the ceiling's `root` is `read-only`";

    fn excess(asked: &EphemeralDirs, most: &EphemeralDirs, ceiling: &Policy) -> Option<Excess> {
        match ceiling.filesystem.root {
            RootAccess::Ephemeral | RootAccess::Engine => None,
            RootAccess::ReadOnly => PartOf::excess(asked, &with_less(most), ceiling),
        }
    }

    fn narrowed(own: &EphemeralDirs, most: &EphemeralDirs, ceiling: &Policy) -> EphemeralDirs {
        if ceiling.filesystem.root >= RootAccess::Ephemeral {
            return own.clone();
        }
        let most = with_less(most);
        let both: BTreeSet<_> = own.intersection(&most).copied().collect();
        // If the ceiling lacks the image's home, an empty one may take its place.
        let instead = with_less(own).intersection(&most).max().copied();
        let empty = instead.filter(|dir| *dir == EphemeralDir::EmptyHome);
        let empty = empty.filter(|_| !both.contains(&EphemeralDir::Home));
        both.into_iter().chain(empty).collect()
    }
}

/// The list with the weaker forms of its items: an empty home wherever the image's home is allowed.
fn with_less(list: &EphemeralDirs) -> EphemeralDirs {
    let mut list = list.clone();
    if list.contains(&EphemeralDir::Home) {
        list.insert(EphemeralDir::EmptyHome);
    }
    list
}

/// Mounts. If every mount may keep the engine's access, a list of some mounts is within that.
pub(super) struct PartOfMounts;

impl<T: Ord + Clone + fmt::Display> CeilingRule<BTreeSet<T>> for PartOfMounts {
    #[cfg(test)]
    const WITHIN: &'static str = "also anything if the ceiling's `mounts` is `keep`";

    fn excess(asked: &BTreeSet<T>, most: &BTreeSet<T>, ceiling: &Policy) -> Option<Excess> {
        match ceiling.filesystem.mounts {
            MountRule::Keep => None,
            MountRule::Drop | MountRule::ReadOnly | MountRule::Volumes => {
                PartOf::excess(asked, most, ceiling)
            }
        }
    }

    fn narrowed(own: &BTreeSet<T>, most: &BTreeSet<T>, ceiling: &Policy) -> BTreeSet<T> {
        match ceiling.filesystem.mounts {
            MountRule::Keep => own.clone(),
            MountRule::Drop | MountRule::ReadOnly | MountRule::Volumes => {
                PartOf::narrowed(own, most, ceiling)
            }
        }
    }
}

/// Mount points. An empty list means anywhere.
pub(super) struct PlacesOf;

impl CeilingRule<GuestPaths> for PlacesOf {
    #[cfg(test)]
    const WITHIN: &'static str = "not empty; also anything if the ceiling's list is empty";

    fn excess(asked: &GuestPaths, most: &GuestPaths, _: &Policy) -> Option<Excess> {
        let within = most.is_empty() || !asked.is_empty() && asked.is_subset(most);
        (!within).then(|| Excess {
            asked: match asked.is_empty() {
                true => "any place".to_owned(),
                false => join(asked.difference(most)),
            },
            allowed: join(most),
            needed: NeededValue::Other,
        })
    }

    /// Two disjoint lists leave no mount point to narrow to. The policy then exceeds the ceiling.
    fn narrowed(own: &GuestPaths, most: &GuestPaths, _: &Policy) -> GuestPaths {
        let common: BTreeSet<_> = own.intersection(most).cloned().collect();
        match (own.is_empty(), common.is_empty()) {
            _ if most.is_empty() => own.clone(),
            (true, _) => most.clone(),
            (false, true) => own.clone(),
            (false, false) => common,
        }
    }
}

/// An item that stands for every other one in a ceiling, and for nothing in a policy.
pub(super) trait OpenItem: Ord + Clone + fmt::Display {
    /// That item.
    const ANY: Self;
}

impl OpenItem for InboundPort {
    const ANY: Self = Self::Any;
}

impl OpenItem for ConnectService {
    const ANY: Self = Self::Any;
}

impl OpenItem for SshKey {
    const ANY: Self = Self::Any;
}

/// Ports, services or keys. If the ceiling has any of them, every one is within it.
pub(super) struct ItemsOf;

impl<T: OpenItem> CeilingRule<BTreeSet<T>> for ItemsOf {
    #[cfg(test)]
    const WITHIN: &'static str = "also anything if the ceiling's list has `*`";

    fn excess(asked: &BTreeSet<T>, most: &BTreeSet<T>, ceiling: &Policy) -> Option<Excess> {
        match most.contains(&T::ANY) {
            true => None,
            false => PartOf::excess(asked, most, ceiling),
        }
    }

    fn narrowed(own: &BTreeSet<T>, most: &BTreeSet<T>, ceiling: &Policy) -> BTreeSet<T> {
        match most.contains(&T::ANY) {
            true => own.clone(),
            // Any item opens nothing by itself, so narrowing it opens none.
            false => PartOf::narrowed(own, most, ceiling),
        }
    }
}

/// Characters of a list in a message: enough to recognize it.
const LISTED: usize = 48;

/// Items in a message.
pub(super) fn join<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    few(items, LISTED)
}
