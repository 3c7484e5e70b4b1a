//! PURE. Files that are somebody's settings as often as credentials (`.npmrc`), judged by what is in them.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Which files, and which of their keys hold secrets: `[settings]` of `policies/never.toml`.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    paths: Vec<PathBuf>,
    secret: Vec<String>,
    marks: Vec<String>,
}

impl Settings {
    /// Whether a file of this name is judged by what is in it.
    pub fn is_one(&self, path: &Path) -> bool {
        self.paths.iter().any(|name| path.ends_with(name))
    }

    /// Whether every line of it is understood, and none holds a secret.
    pub fn are_harmless(&self, content: &[u8]) -> bool {
        let Ok(text) = std::str::from_utf8(content) else {
            return false;
        };
        let marked = self.marks.iter().any(|mark| text.contains(mark.as_str()));
        !marked && text.lines().all(|line| self.is_harmless(line.trim()))
    }

    /// A comment, a section, or a key with a value that is no secret.
    fn is_harmless(&self, line: &str) -> bool {
        if line.is_empty() || line.starts_with(['#', ';', '[']) {
            return true;
        }
        let Some((key, value)) = line.split_once('=') else {
            return false;
        };
        // npm's key begins with the registry: //registry.example/:_authToken
        let key = key.rsplit(':').next().unwrap_or(key).trim();
        let key = key.trim_matches(['"', '\'']).to_ascii_lowercase();
        let value = value.trim().trim_matches(['"', '\'']);
        // A variable of the environment names a secret without being one.
        let named = value.is_empty() || value.starts_with("${") && value.ends_with('}');
        named || !(self.is_secret(&key) || has_password(value))
    }

    fn is_secret(&self, key: &str) -> bool {
        self.secret.iter().any(|word| key.ends_with(word.as_str()))
    }
}

/// An address with a user's password: https://user:password@host/
fn has_password(value: &str) -> bool {
    let authority = value.split_once("://").map(|(_, rest)| rest);
    let authority = authority.and_then(|rest| rest.split(['/', '?']).next());
    let user = authority.and_then(|authority| authority.rsplit_once('@'));
    user.is_some_and(|(user, _)| user.contains(':'))
}

#[cfg(test)]
mod tests {
    use crate::plan::never::Never;

    fn harmless(text: &str) -> bool {
        Never::builtin().settings.are_harmless(text.as_bytes())
    }

    #[test]
    fn a_projects_own_settings_are_harmless() {
        for text in [
            "",
            "save-exact=true\nlegacy-peer-deps=true\n",
            "# comment\n; comment\nregistry=https://npm.example.test/\n@me:registry = https://npm.example.test/\n",
            "//npm.example.test/:_authToken=${NPM_TOKEN}\nalways-auth=true\nauth-type=legacy\n",
            "[client]\nhost = db.example.test\nport=3306\n",
            "org.gradle.jvmargs=-Xmx2g\norg.gradle.parallel=true\n",
        ] {
            assert!(harmless(text), "{text}");
        }
    }

    #[test]
    fn tokens_keys_and_what_is_not_understood_are_not() {
        for text in [
            "//npm.example.test/:_authToken=npm_abcdef\n",
            "save-exact=true\n//npm.example.test/:_password = 'c2VjcmV0'\n",
            "_auth=\"dXNlcjpwYXNz\"",
            "[client]\nuser=me\npassword=x\n",
            "[Credentials]\ngs_oauth2_refresh_token = 1/abc\n",
            "access_key = AKIA\nsecret_key = abc\n",
            "signingKeyPassword=x\n",
            "mavenSecret=x",
            "registry=https://me:word@npm.example.test/\n",
            "key=-----BEGIN PRIVATE KEY-----\\n",
            "the-secret-of-the-project",
            "_authToken=${A}${B}x",
        ] {
            assert!(!harmless(text), "{text}");
        }
        assert!(!Never::builtin().settings.are_harmless(b"a=\xff"));
    }
}
