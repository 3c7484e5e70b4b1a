//! A secret as files write it: the node's, the user's settings of `wrap`, and records of containers.

use std::collections::BTreeSet;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize};

use super::key_preset::KeyPreset;
use super::secret::{BasicUser, QueryName, SecretHeader};
use super::secret_source::{CommandSeconds, SecretCommand, SecretSource, UserSource, VolumeKey};
use super::{Count, HostPath, NodeSecret, PolicyName, SecretName, SecretPlace, VariableName};
use crate::rules::EndDate;
use crate::rules::git::several;
use crate::rules::request::RequestRule;
use crate::text::ValueError;

/// How long a command of the user's may take if they set no limit.
const USUAL_SECONDS: u32 = 10;

/// Whether a variable says which programs or code others run. The command runs outside of the sandbox, and a project may have set it.
fn chooses_code(variable: &str) -> bool {
    const NAMES: [&str; 29] = [
        "AWS_CONFIG_FILE",
        "BASH_ENV",
        "BOTO_CONFIG",
        "CLOUDSDK_PYTHON",
        "DOTNET_STARTUP_HOOKS",
        "ENV",
        "GCONV_PATH",
        "GEM_HOME",
        "GEM_PATH",
        "JAVA_TOOL_OPTIONS",
        "JDK_JAVA_OPTIONS",
        "KUBECONFIG",
        "NODE_OPTIONS",
        "NODE_PATH",
        "OPENSSL_CONF",
        "OPENSSL_ENGINES",
        "OPENSSL_MODULES",
        "PATH",
        "PERL5LIB",
        "PERL5OPT",
        "PYTHONHOME",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONUSERBASE",
        "RUBYLIB",
        "RUBYOPT",
        "VAULT_CONFIG_PATH",
        "XDG_CONFIG_HOME",
        "_JAVA_OPTIONS",
    ];
    const PREFIXES: [&str; 4] = ["BASH_FUNC_", "GIT_", "LD_", "PASSWORD_STORE_E"];
    NAMES.contains(&variable) || PREFIXES.iter().any(|prefix| variable.starts_with(prefix))
}

/// A secret as a file writes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct WrittenSecret {
    /// A provider of policies/keys.toml, which has what is left out here. Never in records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    preset: Option<String>,
    #[serde(default)]
    name: Option<SecretName>,
    /// Only in records, never in a policy file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    of_user: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    file: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    volume: Option<VolumeKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    command_env: BTreeSet<VariableName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command_seconds: Option<CommandSeconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from_env: Option<VariableName>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    policies: BTreeSet<PolicyName>,
    #[serde(default, deserialize_with = "several")]
    requests: BTreeSet<RequestRule>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    header: Option<SecretHeader>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    basic: Option<BasicUser>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    query: Option<QueryName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    env: Option<VariableName>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uses: Option<Count>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<EndDate>,
}

impl WrittenSecret {
    /// With what its preset has and it leaves out, and its name.
    fn filled(mut self) -> Result<(SecretName, Self), String> {
        let Some(provider) = self.preset.take() else {
            let name = self.name.clone();
            let name = name.ok_or("a secret needs a name, or a preset")?;
            return Ok((name, self));
        };
        let preset = KeyPreset::of(&provider)?;
        let name = match self.name.take() {
            Some(name) => name,
            None => provider
                .parse()
                .map_err(|error: ValueError| error.to_string())?,
        };
        self.name = Some(name.clone());
        if self.requests.is_empty() {
            self.requests = preset.requests.clone();
        }
        if self.header.is_none() && self.basic.is_none() && self.query.is_none() {
            self.header = preset.header.clone();
            self.basic = preset.basic.clone();
        }
        self.env = self.env.or_else(|| preset.env.clone());
        Ok((name, self))
    }

    fn source(&self, name: &SecretName) -> Result<SecretSource, String> {
        let path = |text: &str| -> Result<HostPath, String> {
            text.parse()
                .map_err(|error: ValueError| format!("secret {name}: {error}"))
        };
        let is_of_command = self.command_seconds.is_some() || !self.command_env.is_empty();
        if self.command.is_none() && is_of_command {
            return Err(format!(
                "secret {name} has command-env or command-seconds, and no command"
            ));
        }
        if let Some(variable) = self
            .command_env
            .iter()
            .find(|name| chooses_code(name.as_str()))
        {
            return Err(format!(
                "secret {name}: command-env must not have {variable}, which says what code the command runs; name a program by its path"
            ));
        }
        let (file, volume) = (self.file.as_deref(), self.volume.clone());
        let source = match (file, volume, self.command.as_deref(), &self.from_env) {
            (Some(file), None, None, None) if self.of_user => UserSource::File(path(file)?),
            (None, None, Some([program, arguments @ ..]), None) if self.of_user => {
                UserSource::Command(SecretCommand {
                    program: path(program)
                        .map_err(|why| format!("{why}, such as /usr/bin/pass (`command -v`)"))?,
                    arguments: arguments.to_vec(),
                    variables: self.command_env.clone(),
                    seconds: match self.command_seconds {
                        Some(seconds) => seconds,
                        None => CommandSeconds::try_from(USUAL_SECONDS)
                            .map_err(|error| error.to_string())?,
                    },
                })
            }
            (None, None, None, Some(variable)) if self.of_user => {
                UserSource::Variable(variable.clone())
            }
            (Some(file), None, None, None) => return Ok(SecretSource::File(path(file)?)),
            (None, Some(key), None, None) if !self.of_user => return Ok(SecretSource::Volume(key)),
            _ => {
                let keys = match self.of_user {
                    true => "file, command and from-env",
                    false => "file and volume",
                };
                return Err(format!(
                    "secret {name} needs one of {keys}, which say where its value is"
                ));
            }
        };
        Ok(SecretSource::User(source))
    }
}

impl TryFrom<WrittenSecret> for NodeSecret {
    type Error = String;

    fn try_from(written: WrittenSecret) -> Result<Self, String> {
        let (name, written) = written.filled()?;
        let source = written.source(&name)?;
        let WrittenSecret {
            policies,
            requests,
            header,
            basic,
            query,
            env,
            uses,
            until,
            ..
        } = written;
        let place = match (header, basic, query) {
            (Some(header), None, None) => SecretPlace::Header(header),
            (None, Some(user), None) => SecretPlace::Basic(user),
            (None, None, Some(name)) => SecretPlace::Query(name),
            _ => {
                return Err(format!(
                    "secret {name} needs one of header, basic and query, which say where it goes"
                ));
            }
        };
        Ok(Self {
            name,
            source,
            policies,
            requests,
            place,
            env,
            uses,
            until,
        })
    }
}

impl From<NodeSecret> for WrittenSecret {
    fn from(secret: NodeSecret) -> Self {
        let mut written = Self {
            preset: None,
            name: Some(secret.name),
            of_user: false,
            file: None,
            volume: None,
            command: None,
            command_env: BTreeSet::new(),
            command_seconds: None,
            from_env: None,
            policies: secret.policies,
            requests: secret.requests,
            header: None,
            basic: None,
            query: None,
            env: secret.env,
            uses: secret.uses,
            until: secret.until,
        };
        match secret.place {
            SecretPlace::Header(place) => written.header = Some(place),
            SecretPlace::Basic(user) => written.basic = Some(user),
            SecretPlace::Query(name) => written.query = Some(name),
        }
        match secret.source {
            SecretSource::File(file) => written.file = Some(file.to_string()),
            SecretSource::Volume(key) => written.volume = Some(key),
            SecretSource::User(source) => {
                written.of_user = true;
                match source {
                    UserSource::File(file) => written.file = Some(file.to_string()),
                    UserSource::Variable(name) => written.from_env = Some(name),
                    UserSource::Command(command) => {
                        let words = [command.program.to_string()].into_iter();
                        written.command = Some(words.chain(command.arguments).collect());
                        written.command_env = command.variables;
                        written.command_seconds = Some(command.seconds);
                    }
                }
            }
        }
        written
    }
}

/// The secrets of the node's file. Only `wrap` takes secrets of users, from their own settings.
pub(super) fn of_node<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<NodeSecret>, D::Error> {
    #[derive(Deserialize)]
    #[serde(try_from = "WrittenSecret")]
    struct NodeSecretEntry(NodeSecret);
    impl TryFrom<WrittenSecret> for NodeSecretEntry {
        type Error = String;

        fn try_from(written: WrittenSecret) -> Result<Self, String> {
            match written.of_user {
                true => Err("of-user is no key of this file".to_owned()),
                false => written.try_into().map(Self),
            }
        }
    }
    let all: Vec<NodeSecretEntry> = Vec::deserialize(from)?;
    Ok(all
        .into_iter()
        .map(|NodeSecretEntry(secret)| secret)
        .collect())
}

/// `[[secret]]` of the settings of the user of `wrap`.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct UserSecret(WrittenSecret);

impl UserSecret {
    /// The secret of a user with this home, for which `~/` stands.
    pub fn within(self, home: &Path) -> Result<NodeSecret, String> {
        let Self(written) = self;
        let (name, mut written) = written.filled()?;
        if written.of_user || !written.policies.is_empty() {
            return Err(format!(
                "secret {name}: leave out of-user and policies, which are for other files: it counts where its requests are allowed"
            ));
        }
        written.of_user = true;
        let program = written
            .command
            .as_mut()
            .and_then(|command| command.first_mut());
        for path in written.file.iter_mut().chain(program) {
            if let Some(rest) = path.strip_prefix("~/") {
                *path = home.join(rest).display().to_string();
            }
        }
        let secret = NodeSecret::try_from(written)?;
        secret.places()?;
        Ok(secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_has_what_a_secret_leaves_out() {
        let read = |text: &str| {
            let secret = toml::from_str::<UserSecret>(text).map_err(|error| error.to_string())?;
            secret.within(Path::new("/home/me"))
        };
        let short = read("preset = \"anthropic\"\nfrom-env = \"KEY\"").unwrap();
        assert_eq!(short.name.as_str(), "anthropic");
        assert_eq!(short.place.to_string(), "x-api-key");
        assert_eq!(short.env.as_ref().unwrap().as_str(), "ANTHROPIC_API_KEY");
        assert!(short.places().unwrap().len() == 1 && short.requests.len() > 2);
        // The secret's own keys count.
        let own = read(
            "preset = \"openai\"\nname = \"mine\"\nfile = \"/k\"\nenv = \"MINE\"\nquery = \"key\"\nrequests = [\"GET https://a.test/x\"]",
        );
        let own = own.unwrap();
        assert_eq!(own.name.as_str(), "mine");
        assert_eq!(own.env.as_ref().unwrap().as_str(), "MINE");
        assert!(matches!(own.place, SecretPlace::Query(_)));
        assert_eq!(own.requests.len(), 1);
        // A record has no preset: it says what counted.
        let record = serde_json::to_string(&short).unwrap();
        assert!(!record.contains("preset"), "{record}");
        assert_eq!(serde_json::from_str::<NodeSecret>(&record).unwrap(), short);
        for bad in [
            "from-env = \"KEY\"",
            "preset = \"antropic\"\nfrom-env = \"KEY\"",
            "preset = \"anthropic\"",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        // The node's file has them too.
        let node = "[[secret]]\npreset = \"github-git\"\nfile = \"/k\"\npolicies = [\"p\"]";
        assert!(crate::policy::NodeConfig::parse(node).is_ok());
    }

    #[test]
    fn a_users_secret_is_of_a_file_a_command_or_a_variable() {
        let read = |source: &str| {
            let text = format!(
                "name = \"n\"\n{source}\nrequests = [\"GET https://a.test/x\"]\nheader = \"x-api-key: {{}}\""
            );
            let secret = toml::from_str::<UserSecret>(&text).map_err(|error| error.to_string())?;
            secret.within(Path::new("/home/me"))
        };
        let source = |text: &str| read(text).unwrap().of_user().unwrap().clone();
        let why = read("command = [\"pass\", \"show\"]").unwrap_err();
        assert!(why.contains("such as /usr/bin/pass"), "{why}");
        for path in ["~/k", "/home/me/k"] {
            let file = source(&format!("file = \"{path}\""));
            assert_eq!(file, UserSource::File("/home/me/k".parse().unwrap()));
        }
        let variable = source("from-env = \"KEY\"");
        assert_eq!(variable, UserSource::Variable("KEY".parse().unwrap()));
        let UserSource::Command(command) = source("command = [\"~/gh\", \"auth\"]") else {
            panic!();
        };
        assert_eq!(command.program.as_str(), "/home/me/gh");
        assert_eq!(
            (&*command.arguments, command.seconds.get()),
            (&["auth".to_owned()][..], 10)
        );
        let full = "command = [\"/gh\"]\ncommand-seconds = 60\ncommand-env = [\"A\"]";
        for text in ["file = \"/k\"", "from-env = \"KEY\"", full] {
            let secret = read(text).unwrap();
            let record = serde_json::to_string(&secret).unwrap();
            assert_eq!(serde_json::from_str::<NodeSecret>(&record).unwrap(), secret);
        }
        for bad in [
            "",
            "file = \"k\"",
            "file = \"/k\"\nfrom-env = \"KEY\"",
            "volume = \"a/b\"",
            "command = []",
            "command = [\"gh\"]",
            "command = [\"/gh\"]\ncommand-seconds = 301",
            "command-seconds = 3\nfile = \"/k\"",
            "command = [\"/gh\"]\ncommand-env = [\"PATH\"]",
            "command = [\"/gh\"]\ncommand-env = [\"LD_PRELOAD\"]",
            "command = [\"/gh\"]\ncommand-env = [\"AWS_CONFIG_FILE\"]",
            "command = [\"/gh\"]\ncommand-env = [\"GIT_SSH_COMMAND\"]",
            "file = \"/k\"\npolicies = [\"p\"]",
            "file = \"/k\"\nof-user = true",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
        // The node's file has no such sources.
        let node = |source: &str| {
            let text = format!(
                "[[secret]]\nname = \"n\"\n{source}\npolicies = [\"p\"]\nrequests = [\"GET https://a.test/x\"]\nquery = \"key\""
            );
            crate::policy::NodeConfig::parse(&text).map(drop)
        };
        assert!(node("file = \"/k\"").is_ok());
        for of_user in [
            "command = [\"/gh\"]",
            "from-env = \"KEY\"",
            "file = \"/k\"\nof-user = true",
        ] {
            assert!(node(of_user).is_err(), "{of_user}");
        }
    }
}
