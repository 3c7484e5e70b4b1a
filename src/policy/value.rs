//! The value of a field: in files and annotations, and in a policy.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use super::bound::{Amount, Bound};
use super::list::{Item, WrittenList};
use super::number::Number;
use super::period::Period;
use super::temporary::{TemporaryItem, TemporaryRule};
use super::{
    AuditedPolicy, ByteSize, Capability, ConnectService, CredentialName, Field, GuestPath,
    InboundPort, PolicyError, ProtectedName, SshKey, TimeLimit,
};
use crate::kernel::SyscallName;
use crate::rules::{EgressRule, PresetName, RuleItem};
use crate::text::ValueError;

/// Looks up a preset that a field names.
pub(super) type Expand<'a> =
    dyn Fn(&PresetName, Field) -> Result<BTreeSet<EgressRule>, PolicyError> + 'a;

/// The value of a field in a complete policy.
pub(super) trait Value: Sized {
    /// The value in one file or one annotation.
    type Written;

    /// Puts an author's value over the base's.
    fn put(written: Self::Written, slot: &mut Option<Self::Written>);

    /// The value itself, with presets expanded.
    fn complete(
        written: Self::Written,
        field: Field,
        presets: &Expand<'_>,
    ) -> Result<Self, PolicyError>;

    /// The value as a complete one in a file.
    fn written(self) -> Self::Written;

    /// The possible values, for docs/policy.md: the text of the error about any other.
    #[cfg(test)]
    fn values() -> String;

    /// The value in docs/policy.md.
    #[cfg(test)]
    fn shown(&self) -> String;
}

/// A value, or an item of a list, that is the same in files and in a policy. `words!` implements this trait.
pub(super) trait PlainValue: FromStr<Err = ValueError> + fmt::Display {}

impl<T: PlainValue> Item for T {}

impl PlainValue for AuditedPolicy {}
impl PlainValue for ByteSize {}
impl PlainValue for Capability {}
impl PlainValue for ConnectService {}
impl PlainValue for CredentialName {}
impl PlainValue for GuestPath {}
impl PlainValue for InboundPort {}
impl PlainValue for ProtectedName {}
impl PlainValue for SshKey {}
impl PlainValue for SyscallName {}
impl PlainValue for TimeLimit {}
impl<const LEAST: u32, const MOST: u32> PlainValue for Period<LEAST, MOST> {}
impl<T: Amount> PlainValue for Bound<T> {}
impl<const LEAST: u32, const MOST: u32, const SECONDS: bool> PlainValue
    for Number<LEAST, MOST, SECONDS>
{
}

impl<T: PlainValue> Value for T {
    type Written = Self;

    fn put(written: Self, slot: &mut Option<Self>) {
        *slot = Some(written);
    }

    fn complete(written: Self, _: Field, _: &Expand<'_>) -> Result<Self, PolicyError> {
        Ok(written)
    }

    fn written(self) -> Self {
        self
    }

    #[cfg(test)]
    fn values() -> String {
        allowed::<T>()
    }

    #[cfg(test)]
    fn shown(&self) -> String {
        self.to_string()
    }
}

impl<T: PlainValue + Ord> Value for BTreeSet<T> {
    type Written = WrittenList<T>;

    fn put(written: WrittenList<T>, slot: &mut Option<WrittenList<T>>) {
        written.put(slot);
    }

    fn complete(written: WrittenList<T>, _: Field, _: &Expand<'_>) -> Result<Self, PolicyError> {
        Ok(written.items)
    }

    fn written(self) -> WrittenList<T> {
        self.into()
    }

    #[cfg(test)]
    fn values() -> String {
        format!("a list; an item is {}", allowed::<T>())
    }

    #[cfg(test)]
    fn shown(&self) -> String {
        crate::text::few(self, usize::MAX)
    }
}

/// Files have rules, or names of presets.
impl Value for BTreeSet<EgressRule> {
    type Written = WrittenList<RuleItem>;

    fn put(written: WrittenList<RuleItem>, slot: &mut Option<WrittenList<RuleItem>>) {
        written.put(slot);
    }

    fn complete(
        written: WrittenList<RuleItem>,
        field: Field,
        presets: &Expand<'_>,
    ) -> Result<Self, PolicyError> {
        let mut rules = Self::new();
        for item in written.items {
            rules.extend(match item.rules() {
                Ok(rules) => rules,
                Err(name) => presets(&name, field)?,
            });
        }
        Ok(rules)
    }

    fn written(self) -> WrittenList<RuleItem> {
        let items: BTreeSet<_> = self.into_iter().map(RuleItem::Rule).collect();
        items.into()
    }

    #[cfg(test)]
    fn values() -> String {
        format!("a list; an item is {}", allowed::<RuleItem>())
    }

    #[cfg(test)]
    fn shown(&self) -> String {
        crate::text::few(self, usize::MAX)
    }
}

/// The same with an end for each.
impl Value for BTreeSet<TemporaryRule> {
    type Written = WrittenList<TemporaryItem>;

    fn put(written: WrittenList<TemporaryItem>, slot: &mut Option<WrittenList<TemporaryItem>>) {
        written.put(slot);
    }

    fn complete(
        written: WrittenList<TemporaryItem>,
        field: Field,
        presets: &Expand<'_>,
    ) -> Result<Self, PolicyError> {
        let mut rules = Self::new();
        for TemporaryItem { item, term } in written.items {
            let of_item = match item.rules() {
                Ok(rules) => rules,
                Err(name) => presets(&name, field)?,
            };
            rules.extend(of_item.into_iter().map(|item| TemporaryRule { item, term }));
        }
        Ok(rules)
    }

    fn written(self) -> WrittenList<TemporaryItem> {
        let items: BTreeSet<_> = self
            .into_iter()
            .map(|TemporaryRule { item, term }| {
                let item = RuleItem::Rule(item);
                TemporaryItem { item, term }
            })
            .collect();
        items.into()
    }

    #[cfg(test)]
    fn values() -> String {
        format!("a list; an item is {}", allowed::<TemporaryItem>())
    }

    #[cfg(test)]
    fn shown(&self) -> String {
        crate::text::few(self, usize::MAX)
    }
}

/// An enum whose variants are words: one table gives its parser, its printer and its errors.
///
/// The order of the variants is their order of comparison.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)+ }) => {
        $(#[$meta])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash,
            serde::Serialize, serde::Deserialize,
        )]
        #[serde(try_from = "String", into = "String")]
        pub enum $name { $($(#[$doc])* $variant,)+ }

        impl $name {
            /// Every word, least first.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The word itself, as policies and annotations spell it.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(self.as_str())
            }
        }

        impl std::str::FromStr for $name {
            type Err = $crate::text::ValueError;

            fn from_str(value: &str) -> Result<Self, Self::Err> {
                Self::ALL.iter().copied().find(|word| word.as_str() == value).ok_or_else(|| {
                    $crate::text::ValueError::one_of(
                        value,
                        Self::ALL.iter().map(|word| word.as_str()),
                    )
                })
            }
        }

        $crate::text::string_form!($name);

        impl $crate::policy::value::PlainValue for $name {}
    };
}
pub(super) use words;

/// The values that the parser's error names as allowed.
#[cfg(test)]
fn allowed<T: FromStr<Err = ValueError>>() -> String {
    // No value has a control character.
    let wrong = "\0".parse::<T>().err();
    wrong.expect("a parser takes everything").allowed
}
