//! PURE. Refuses specs that runc refuses and libcontainer accepts.

use std::collections::BTreeSet;
use std::path::Path;

use oci_spec::runtime::{Process, Spec};

/// Why a spec is refused, in runc's words if engines or users know them.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SpecRefusal {
    /// No working directory.
    #[error("Cwd property must not be empty")]
    NoCwd,
    /// A relative working directory, which would depend on where the runtime was started.
    #[error("Cwd must be an absolute path")]
    RelativeCwd,
    /// An environment variable without a name or a value.
    #[error("invalid environment variable: {0:?}")]
    Environment(String),
    /// A kind of namespace is listed twice.
    #[error("malformed spec file: duplicated namespace {0}")]
    Namespace(String),
}

/// Checks a spec.
pub fn spec(spec: &Spec) -> Result<(), SpecRefusal> {
    if let Some(given) = spec.process() {
        process(given)?;
    }
    let mut seen = BTreeSet::new();
    let namespaces = spec.linux().as_ref().and_then(|l| l.namespaces().as_ref());
    for namespace in namespaces.into_iter().flatten() {
        let name = namespace.typ().to_string();
        if !seen.insert(name.clone()) {
            return Err(SpecRefusal::Namespace(name));
        }
    }
    Ok(())
}

/// Checks an init process or an exec process.
pub fn process(process: &Process) -> Result<(), SpecRefusal> {
    let cwd: &Path = process.cwd();
    if cwd.as_os_str().is_empty() {
        return Err(SpecRefusal::NoCwd);
    }
    if !cwd.is_absolute() {
        return Err(SpecRefusal::RelativeCwd);
    }
    let named = |e: &&String| e.split_once('=').is_none_or(|(name, _)| name.is_empty());
    match process.env().iter().flatten().find(named) {
        Some(bad) => Err(SpecRefusal::Environment(bad.clone())),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use oci_spec::runtime::{LinuxNamespaceBuilder, LinuxNamespaceType};

    fn with(change: impl FnOnce(&mut Process)) -> Result<(), SpecRefusal> {
        let mut process = Process::default();
        change(&mut process);
        super::process(&process)
    }

    #[test]
    fn a_working_directory_is_absolute() {
        assert_eq!(with(|p| _ = p.set_cwd("".into())), Err(SpecRefusal::NoCwd));
        assert_eq!(
            with(|p| _ = p.set_cwd("etc".into())),
            Err(SpecRefusal::RelativeCwd)
        );
        assert_eq!(with(|p| _ = p.set_cwd("/etc".into())), Ok(()));
    }

    #[test]
    fn a_variable_has_a_name_and_an_equals_sign() {
        for bad in ["NAME", "=value", ""] {
            let found = with(|p| _ = p.set_env(Some(vec![bad.to_owned()])));
            assert_eq!(found, Err(SpecRefusal::Environment(bad.to_owned())));
        }
        assert_eq!(with(|p| _ = p.set_env(Some(vec!["A=".to_owned()]))), Ok(()));
    }

    #[test]
    fn a_kind_of_namespace_is_listed_once() {
        let mut spec = Spec::default();
        let mut linux = spec.linux().clone().unwrap_or_default();
        let pid = || {
            LinuxNamespaceBuilder::default()
                .typ(LinuxNamespaceType::Pid)
                .build()
                .unwrap()
        };
        linux.set_namespaces(Some(vec![pid(), pid()]));
        spec.set_linux(Some(linux));
        assert!(matches!(super::spec(&spec), Err(SpecRefusal::Namespace(_))));
    }
}
