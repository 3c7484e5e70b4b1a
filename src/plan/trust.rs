//! PURE. How a container's programs trust its own certificate authority, which opens TLS: files that get its
//! certificate, and variables that name files with it.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use serde::Deserialize;

use super::report::DENIED_IN;
use crate::data::table;

/// The directory with these files, inside.
pub const TRUST_IN: &str = "/run/agentbox/trust";
/// Its name in [`DENIED_IN`].
pub const TRUST: &str = "trust";
/// Only the authority's certificate.
pub const AUTHORITY: &str = "authority.pem";
/// All trusted certificates, including the authority's.
pub const ALL: &str = "certificates.pem";

/// `policies/trust.toml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TrustList {
    file: Vec<File>,
    variable: Vec<Variable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    path: PathBuf,
    /// The origin of the path.
    #[serde(rename = "source")]
    _source: String,
}

/// A variable that names a file of trusted certificates.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Variable {
    name: String,
    /// Whether the file adds to the program's own certificates instead of replacing them.
    #[serde(default)]
    adds: bool,
    /// The program that reads it.
    #[serde(rename = "source")]
    _source: String,
}

static LIST: LazyLock<TrustList> = LazyLock::new(|| {
    table!("trust")
        .read()
        .expect("a test parses the built-in list")
});

/// The variables, each with its file in this directory.
pub fn variables(directory: &str) -> impl Iterator<Item = (&'static str, String)> + '_ {
    LIST.variable.iter().map(move |variable| {
        let file = if variable.adds { AUTHORITY } else { ALL };
        (variable.name.as_str(), format!("{directory}/{file}"))
    })
}

/// The certificate lists of distributions, which get the certificate.
pub fn lists() -> impl Iterator<Item = &'static Path> {
    LIST.file.iter().map(|file| file.path.as_path())
}

/// Files that a process's variables already name; they get the certificate too.
pub fn named(environment: &[String]) -> BTreeSet<PathBuf> {
    let named = environment.iter().filter_map(|entry| {
        let (name, value) = entry.split_once('=')?;
        let known = LIST.variable.iter().any(|variable| variable.name == name);
        let path = PathBuf::from(value);
        (known && path.is_absolute() && !path.starts_with(DENIED_IN)).then_some(path)
    });
    named
        .filter(|path| !lists().any(|list| list == path))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_a_variable_names_already_gets_the_certificate() {
        let environment = [
            "SSL_CERT_FILE=/opt/company.pem",
            "PIP_CERT=/run/agentbox/trust/certificates.pem",
            "CURL_CA_BUNDLE=relative.pem",
            "HOME=/opt/other.pem",
        ]
        .map(str::to_owned);
        assert_eq!(named(&environment), ["/opt/company.pem".into()].into());
        let listed = ["SSL_CERT_FILE=/etc/ssl/cert.pem".to_owned()];
        assert!(named(&listed).is_empty() && lists().count() > 5);
        assert_eq!(TRUST_IN, format!("{DENIED_IN}/{TRUST}"));
    }

    #[test]
    fn a_variable_that_replaces_names_all_certificates_and_one_that_adds_names_one() {
        let all: Vec<(&str, String)> = variables("/t").collect();
        assert!(all.contains(&("SSL_CERT_FILE", "/t/certificates.pem".to_owned())));
        assert!(all.contains(&("NODE_EXTRA_CA_CERTS", "/t/authority.pem".to_owned())));
    }
}
