//! Code generated from the rows of the table of fields (`table.rs`). Nothing here knows a field by its name.

/// Which fields of a policy are narrowed to a ceiling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NarrowScope {
    /// The fields that are narrowed even in a policy that was chosen by name.
    Chosen,
    /// All of them.
    Everything,
}

/// Who can set a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldSource {
    /// Policy files and annotations.
    Annotated,
    /// Policy files only. Annotations cannot permit themselves more, and a field that counts only in a ceiling would
    /// have no effect in a container.
    FilesAlone,
}

/// What shows at run time that a policy that is only reported would forbid something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FieldTrace {
    /// Connections and mounts are observed, capabilities are among the engine's requests, and some fields forbid nothing.
    Seen,
    /// Nothing. The difference of the two policies is reported.
    Unseen,
}

/// A row, for docs/policy.md.
#[cfg(test)]
pub(super) struct Row {
    pub field: super::Field,
    pub values: String,
    pub meaning: String,
    pub within: &'static str,
}

/// Everything that is generated the same way for each field.
macro_rules! fields {
    ($(
        $(#[doc = $about:literal])+
        $(#[derive($also:ident)])?
        $Group:ident in $group:ident, written $Written:ident {
            $(
                $(#[doc = $meaning:literal])+
                $slot:ident: $Type:ty = $Field:ident $word:literal, $Rule:ident, $SetBy:ident, $Trace:ident;
            )+
        }
    )+) => {
        /// A complete policy: every field has a value.
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct Policy {
            /// The chosen policy; annotations may have changed single fields of it.
            pub name: $crate::policy::PolicyName,
            $($(#[doc = $about])+ pub $group: $Group,)+
        }

        $crate::policy::value::words! {
            /// A field of a policy, by its place in the file. Its annotation is `dev.agentbox.` and the same words.
            Field { $($($(#[doc = $meaning])+ $Field = $word,)+)+ }
        }

        impl Field {
            /// Whether an annotation can set it.
            pub fn has_annotation(self) -> bool {
                use $crate::policy::rows::FieldSource;
                let by = match self { $($(Self::$Field => FieldSource::$SetBy,)+)+ };
                by == FieldSource::Annotated
            }

            /// Whether its use is observed at run time: of a policy that is only reported, the plan names only the other fields.
            pub fn is_observed(self) -> bool {
                use $crate::policy::rows::FieldTrace;
                let trace = match self { $($(Self::$Field => FieldTrace::$Trace,)+)+ };
                trace == FieldTrace::Seen
            }
        }

        $crate::policy::rows::parts! { $(
            $(#[doc = $about])+ $(#[derive($also)])? $Group $Written {
                $($(#[doc = $meaning])+ $slot: $Type = $Field,)+
            }
        )+ }

        /// Any subset of a policy's fields, as one file or one container's annotations set them.
        #[derive(Debug, Default, Clone, PartialEq, Eq)]
        pub(super) struct Fields { $(pub $group: $Written,)+ }

        impl Fields {
            /// Puts the fields of `over` over these, and notes each of them.
            pub fn put(&mut self, over: Self, mut note: impl FnMut(Field)) {
                $($(if let Some(written) = over.$group.$slot {
                    <$Type as $crate::policy::value::Value>::put(written, &mut self.$group.$slot);
                    note(Field::$Field);
                })+)+
            }

            /// Parses the value of an annotation.
            pub fn take(
                &mut self,
                field: Field,
                value: &str,
            ) -> Result<(), $crate::text::ValueError> {
                match field {
                    $($(Field::$Field => self.$group.$slot = Some(value.parse()?),)+)+
                }
                Ok(())
            }

            /// The policy that these fields make, or the first missing field.
            pub fn whole(
                self,
                name: $crate::policy::PolicyName,
                presets: &$crate::policy::value::Expand<'_>,
            ) -> Result<Policy, $crate::policy::fields::FieldsError> {
                Ok(Policy { name, $($group: self.$group.whole(presets)?,)+ })
            }
        }

        impl From<Policy> for Fields {
            fn from(policy: Policy) -> Self {
                Self { $($group: policy.$group.into(),)+ }
            }
        }

        /// The content of a policy file.
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub(super) struct PolicyFile {
            pub description: Option<$crate::policy::file::Description>,
            pub base: Option<$crate::policy::PolicyName>,
            $(#[serde(default)] $group: $Written,)+
        }

        impl PolicyFile {
            /// The policy's fields.
            pub fn into_fields(self) -> Fields {
                Fields { $($group: self.$group,)+ }
            }
        }

        impl Policy {
            /// The policy as a complete file without a base.
            pub fn to_toml(&self) -> String {
                // A file's name is the policy's name.
                #[derive(serde::Serialize)]
                struct Document<'a> { $($group: &'a $Group,)+ }
                toml::to_string(&Document { $($group: &self.$group,)+ })
                    .expect("tables of strings and arrays of strings always have a TOML form")
            }
        }

        /// Calls back for each field in which `asked` exceeds the ceiling.
        pub(super) fn compare(
            asked: &Policy,
            ceiling: &Policy,
            mut over: impl FnMut(Field, $crate::policy::ceiling_rule::Excess),
        ) {
            use $crate::policy::ceiling_rule::CeilingRule;
            $($(
                let most = &ceiling.$group.$slot;
                if let Some(excess) = $Rule::excess(&asked.$group.$slot, most, ceiling) {
                    over(Field::$Field, excess);
                }
            )+)+
        }

        /// Narrows a policy to a ceiling. Returns the changed fields.
        pub(super) fn narrow(
            own: &mut Policy,
            ceiling: &Policy,
            narrow: $crate::policy::rows::NarrowScope,
        ) -> Vec<Field> {
            use $crate::policy::ceiling_rule::CeilingRule;
            let everything = narrow == $crate::policy::rows::NarrowScope::Everything;
            let mut changed = Vec::new();
            $($(
                if everything || <$Rule as CeilingRule<$Type>>::NARROWS_CHOSEN {
                    let slot = &mut own.$group.$slot;
                    let narrowed = $Rule::narrowed(slot, &ceiling.$group.$slot, ceiling);
                    if narrowed != *slot {
                        *slot = narrowed;
                        changed.push(Field::$Field);
                    }
                }
            )+)+
            changed
        }

        /// The rows, for docs/policy.md.
        #[cfg(test)]
        pub(super) fn rows() -> Vec<$crate::policy::rows::Row> {
            use $crate::policy::ceiling_rule::CeilingRule;
            vec![$($($crate::policy::rows::Row {
                field: Field::$Field,
                values: <$Type as $crate::policy::value::Value>::values(),
                meaning: concat!($($meaning),+).trim().to_owned(),
                within: <$Rule as CeilingRule<$Type>>::WITHIN,
            },)+)+]
        }

        /// A field's value, for docs/policy.md.
        #[cfg(test)]
        pub(super) fn shown(policy: &Policy, field: Field) -> String {
            use $crate::policy::value::Value;
            match field { $($(Field::$Field => policy.$group.$slot.shown(),)+)+ }
        }
    };
}
pub(super) use fields;

/// The groups of a policy: complete, and as one author writes them.
macro_rules! parts {
    ($(
        $(#[doc = $about:literal])+
        $(#[derive($also:ident)])?
        $Group:ident $Written:ident {
            $(
                $(#[doc = $meaning:literal])+
                $slot:ident: $Type:ty = $Field:ident,
            )+
        }
    )+) => { $(
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize $(, $also)?)]
        #[serde(deny_unknown_fields, rename_all = "kebab-case")]
        pub struct $Group { $($(#[doc = $meaning])+ pub $slot: $Type,)+ }

        /// The part of it that one author sets.
        #[derive(Debug, Default, Clone, PartialEq, Eq, serde::Deserialize)]
        #[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
        pub(super) struct $Written {
            $(pub $slot: Option<<$Type as $crate::policy::value::Value>::Written>,)+
        }

        impl $Written {
            fn whole(
                self,
                presets: &$crate::policy::value::Expand<'_>,
            ) -> Result<$Group, $crate::policy::fields::FieldsError> {
                use $crate::policy::fields::FieldsError;
                use $crate::policy::value::Value;
                Ok($Group { $($slot: {
                    let written = self.$slot.ok_or(FieldsError::Missing(Field::$Field))?;
                    <$Type>::complete(written, Field::$Field, presets).map_err(FieldsError::Preset)?
                },)+ })
            }
        }

        impl From<$Group> for $Written {
            fn from(whole: $Group) -> Self {
                use $crate::policy::value::Value;
                Self { $($slot: Some(whole.$slot.written()),)+ }
            }
        }
    )+ };
}
pub(super) use parts;
