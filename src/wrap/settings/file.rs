//! A settings file: parses its text, and describes what it does.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, anyhow};
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::effects::{asks, kept_outside, unasked, unprotects};
use crate::cli::{AGENTS, Walls};
use crate::policy::{
    ConnectService, Field, FieldOption, NodeSecret, OnUnknown, ProtectedName, Publish, UserSecret,
    items_of_file, list_text,
};
use crate::text::shown;
use crate::wrap::agents::choice::NO_AGENT;
use crate::wrap::caches::Caches;

/// The keys of a file. Each is an option of `wrap`.
#[derive(Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default, rename_all = "kebab-case")]
pub struct Settings {
    /// A policy's name, or a file's path.
    pub policy: Option<String>,
    /// An agent's name, or `none`.
    #[serde(deserialize_with = "agent")]
    pub agent: Option<String>,
    #[serde(deserialize_with = "items_of_file")]
    allow: Vec<String>,
    #[serde(deserialize_with = "items_of_file")]
    deny: Vec<String>,
    ask: Option<bool>,
    set: BTreeMap<String, Value>,
    /// All paths are absolute once the file is parsed.
    #[serde(deserialize_with = "items_of_file")]
    pub read: Vec<PathBuf>,
    /// Additional writable paths.
    #[serde(deserialize_with = "items_of_file")]
    pub write: Vec<PathBuf>,
    /// Hidden paths.
    #[serde(deserialize_with = "items_of_file")]
    pub hide: Vec<PathBuf>,
    #[serde(deserialize_with = "items_of_file")]
    unprotect: Vec<ProtectedName>,
    /// Ports of the node that lead inside.
    #[serde(deserialize_with = "ports")]
    pub publish: Vec<Publish>,
    /// Services of the machine.
    #[serde(deserialize_with = "services")]
    connect: Vec<ConnectService>,
    /// Variables, `NAME` or `NAME=VALUE`.
    #[serde(deserialize_with = "items_of_file")]
    pub env: Vec<String>,
    /// Files of variables.
    #[serde(deserialize_with = "items_of_file")]
    pub env_file: Vec<PathBuf>,
    /// Which kind of walls.
    pub walls: Option<Walls>,
    /// Whether package caches are visible: true, false or "keep".
    #[serde(deserialize_with = "caches")]
    pub caches: Option<Caches>,
    /// Whether denials are not printed.
    pub quiet: Option<bool>,
    /// Where the summary goes.
    pub summary: Option<PathBuf>,
    #[serde(rename = "secret")]
    written_secrets: Vec<UserSecret>,
    /// The user's own secrets.
    #[serde(skip)]
    pub secrets: Vec<NodeSecret>,
}

/// The value of a policy field, in the spelling of a policy file.
#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a text, a number or a list of texts")]
enum Value {
    Text(String),
    Number(i64),
    List(Vec<String>),
    /// `limits.pids = 500` is a table with one row in TOML.
    Table(BTreeMap<String, Value>),
}

/// The base of a file's relative paths, and whether it may have secrets.
pub struct PathBase<'a> {
    directory: Option<&'a Path>,
    home: Option<&'a Path>,
    secrets: bool,
}

impl<'a> PathBase<'a> {
    /// The user's file. It applies in every directory, so its paths must be absolute or begin with `~/`.
    pub fn of_person(home: &'a Path) -> Self {
        Self {
            directory: None,
            home: Some(home),
            secrets: true,
        }
    }

    /// The user's answers at the prompt, which are rules.
    pub fn of_answers() -> Self {
        Self {
            directory: None,
            home: None,
            secrets: false,
        }
    }

    /// A project's file.
    pub fn of_project(directory: &'a Path, home: Option<&'a Path>) -> Self {
        Self {
            directory: Some(directory),
            home,
            secrets: false,
        }
    }

    fn absolute(&self, path: &Path) -> Result<PathBuf> {
        if let Ok(rest) = path.strip_prefix("~") {
            let home = self
                .home
                .ok_or_else(|| anyhow!("{path:?}: there is no home"))?;
            return Ok(home.join(rest));
        }
        match self.directory {
            Some(directory) => Ok(directory.join(path)),
            None if path.is_absolute() => Ok(path.to_owned()),
            None => Err(anyhow!(
                "{path:?} is relative, and these settings hold in every directory: let it begin with / or ~/"
            )),
        }
    }
}

impl Settings {
    /// Parses a file. Unknown keys are errors.
    pub fn parse(text: &str, base: PathBase<'_>) -> Result<Self> {
        let mut settings: Self = toml::from_str(text).map_err(|error| {
            let before = error.span().and_then(|span| text.get(..span.start));
            let line = before.map_or(1, |before| before.matches('\n').count() + 1);
            anyhow!("line {line}: {}", error.message())
        })?;
        let Self {
            policy,
            read,
            write,
            hide,
            env_file,
            summary,
            ..
        } = &mut settings;
        let lists = [read, write, hide, env_file].into_iter().flatten();
        for path in lists.chain(summary) {
            *path = base.absolute(path)?;
        }
        if let Some(policy) = policy.as_mut().filter(|name| is_file(name)) {
            let path = base.absolute(Path::new(policy))?;
            *policy = path
                .into_os_string()
                .into_string()
                .map_err(|path| anyhow!("the policy file {path:?} has a name that is not UTF-8"))?;
        }
        for written in std::mem::take(&mut settings.written_secrets) {
            let home = base.home.filter(|_| base.secrets).ok_or_else(|| {
                anyhow!("[[secret]] counts in your own ~/.config/agentbox/config.toml alone: move it there")
            })?;
            let secret = written.within(home).map_err(|why| anyhow!(why))?;
            if settings
                .secrets
                .iter()
                .any(|known| known.name == secret.name)
            {
                return Err(anyhow!(
                    "two secrets have the name {}: rename one",
                    secret.name
                ));
            }
            settings.secrets.push(secret);
        }
        // An unknown field is reported here, while its file is known.
        settings.fields("")?;
        Ok(settings)
    }

    /// The policy fields that it sets; `file` is its path.
    pub fn fields(&self, file: &str) -> Result<Vec<FieldOption>> {
        let mut all = Vec::new();
        for (name, value) in self.set_fields() {
            let option = FieldOption::set(&format!("{name}={value}"))?;
            let setting = format!("set.{name}");
            all.push(option.in_file(&setting, file));
        }
        let allow = self.allow.iter();
        let allow = allow.flat_map(|item| FieldOption::allowing("allow", &list_text([item])));
        all.extend(allow.map(|option| option.in_file("allow", file)));
        for item in &self.deny {
            let option = FieldOption::adding("deny", Field::NetworkDeny, &list_text([item]));
            all.push(option.in_file("deny", file));
        }
        for published in &self.publish {
            let port = published.inside().to_string();
            let option = FieldOption::adding("publish", Field::NetworkInbound, &port);
            all.push(option.in_file("publish", file));
        }
        for service in &self.connect {
            let service = service.to_string();
            let option = FieldOption::adding("connect", Field::NetworkConnect, &service);
            all.push(option.in_file("connect", file));
        }
        for name in &self.unprotect {
            let field = Field::FilesystemUnprotected;
            let option = FieldOption::adding("unprotect", field, name.as_str());
            all.push(option.in_file("unprotect", file));
        }
        if let Some(value) = self.on_unknown() {
            let option = FieldOption::setting("ask", Field::NetworkOnUnknown, &value.to_string());
            all.push(option.in_file("ask", file));
        }
        Ok(all)
    }

    fn on_unknown(&self) -> Option<OnUnknown> {
        self.ask.map(|ask| match ask {
            true => OnUnknown::Ask,
            false => OnUnknown::Deny,
        })
    }

    /// The fields under `set`, each with its full name, and its value spelled as in an annotation.
    fn set_fields(&self) -> Vec<(String, String)> {
        let mut all = Vec::new();
        flatten("", &self.set, &mut all);
        all
    }

    /// What it does, one line per setting. Values of variables are left out: they may be secrets.
    pub fn effects(&self) -> Vec<String> {
        let Self {
            policy,
            agent,
            allow,
            deny,
            ask: _,
            set: _,
            read,
            write,
            hide,
            unprotect,
            publish,
            connect,
            env,
            env_file,
            walls,
            caches,
            quiet,
            summary,
            written_secrets: _,
            secrets,
        } = self;
        let mut all = Vec::new();
        let one = |text: &str, value: &str| format!("{text}: {}", shown(value));
        all.extend(policy.iter().map(|name| one("policy", name)));
        all.extend(
            agent
                .iter()
                .map(|name| match AGENTS.contains(&name.as_str()) {
                    true => one("allows the hosts and your login of the agent", name),
                    false => "chooses no agent".to_owned(),
                }),
        );
        all.extend(walls.map(|walls| one("walls", walls.as_str())));
        for (name, value) in &self.set_fields() {
            all.push(one(&format!("sets {name} to"), value));
            all.extend(unasked(name, value));
        }
        all.extend(allow.iter().map(|host| one("lets be reached", host)));
        all.extend(deny.iter().map(|host| one("lets never be reached", host)));
        all.extend(self.on_unknown().map(asks));
        let paths = [
            ("shows, read-only", read),
            ("lets be written", write),
            ("hides", hide),
            ("passes on the variables of the file", env_file),
        ];
        for (text, paths) in paths {
            all.extend(paths.iter().map(|path| format!("{text}: {path:?}")));
        }
        all.extend(unprotect.iter().map(|name| unprotects(name.as_str())));
        all.extend(publish.iter().map(|port| format!("publishes: {port}")));
        let services = connect.iter();
        all.extend(services.map(|service| format!("lets this service be reached: {service}")));
        let names = env.iter().map(|pair| match pair.split_once('=') {
            Some((name, _)) => one("sets the variable", name),
            None => one("passes on your variable", pair),
        });
        all.extend(names);
        all.extend(secrets.iter().filter_map(kept_outside));
        all.extend(caches.map(|caches| match caches {
            Caches::Private => "lets caches of package managers be read".to_owned(),
            Caches::Kept => "keeps writes to package caches for the next run here".to_owned(),
            Caches::Hidden => "hides caches of package managers".to_owned(),
        }));
        all.extend(quiet.map(|quiet| match quiet {
            true => "prints no progress and no notices at the start".to_owned(),
            false => "prints progress and notices at the start".to_owned(),
        }));
        let summary = summary.iter();
        all.extend(summary.map(|path| format!("writes a summary to: {path:?}")));
        all
    }
}

/// The value of `agent` in a file.
fn agent<'de, D: Deserializer<'de>>(from: D) -> Result<Option<String>, D::Error> {
    let name = String::deserialize(from)?;
    match name == NO_AGENT || AGENTS.contains(&name.as_str()) {
        true => Ok(Some(name)),
        false => Err(D::Error::custom(format!(
            "agent is one of {}, {NO_AGENT}",
            AGENTS.join(", ")
        ))),
    }
}

/// The value of `caches` in a file.
fn caches<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Caches>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "true, false or \"keep\"")]
    enum CachesValue {
        Seen(bool),
        Word(Word),
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Word {
        Keep,
    }
    Ok(Some(match CachesValue::deserialize(from)? {
        CachesValue::Seen(true) => Caches::Private,
        CachesValue::Seen(false) => Caches::Hidden,
        CachesValue::Word(Word::Keep) => Caches::Kept,
    }))
}

/// Whether a value of `--policy` is a file: no policy name has a `/` or ends in `.toml`.
pub fn is_file(policy: &str) -> bool {
    policy.contains('/') || policy.ends_with(".toml")
}

fn ports<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<Publish>, D::Error> {
    let texts = texts(from, "publish is a list of ports")?.into_iter();
    texts
        .map(|text| text.parse().map_err(D::Error::custom))
        .collect()
}

fn services<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ConnectService>, D::Error> {
    let texts = texts(from, "connect is a list of services")?.into_iter();
    texts
        .map(|text| ConnectService::named(&text).map_err(D::Error::custom))
        .collect()
}

/// Each is a text, or a number for a port alone.
fn texts<'de, D: Deserializer<'de>>(from: D, what: &str) -> Result<Vec<String>, D::Error> {
    let all: Vec<Value> = items_of_file(from)?;
    let texts = all.into_iter().map(|value| match value {
        Value::Text(text) => Ok(text),
        Value::Number(number) => Ok(number.to_string()),
        Value::List(_) | Value::Table(_) => Err(D::Error::custom(what)),
    });
    texts.collect()
}

fn flatten(above: &str, table: &BTreeMap<String, Value>, all: &mut Vec<(String, String)>) {
    for (key, value) in table {
        let name = match above {
            "" => key.clone(),
            above => format!("{above}.{key}"),
        };
        match value {
            Value::Text(text) => all.push((name, text.clone())),
            Value::Number(number) => all.push((name, number.to_string())),
            Value::List(items) => all.push((name, list_text(items))),
            Value::Table(below) => flatten(&name, below, all),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Settings> {
        Settings::parse(
            text,
            PathBase::of_project(Path::new("/p"), Some(Path::new("/h"))),
        )
    }

    /// `trust` shows an item as one line: it is one rule.
    #[test]
    fn an_item_of_a_files_list_is_one_rule_whatever_its_commas() {
        let value = |text: &str| {
            let fields = parse(text).unwrap().fields("/f").unwrap();
            let [only] = fields.as_slice() else {
                panic!("{text}: {fields:?}")
            };
            only.value.clone()
        };
        let rule = "GET https://api.test/v1,evil.test:443";
        for list in ["allow", "deny"] {
            assert_eq!(value(&format!("{list} = [{rule:?}]")), format!("{rule:?}"));
        }
        let methods = "GET,HEAD https://api.test/v1";
        assert_eq!(value(&format!("allow = [{methods:?}]")), methods);
    }

    #[test]
    fn all_that_options_say_can_be_said() {
        let text = r#"
            policy = "./mine.toml"
            agent = "claude"
            walls = "landlock"
            caches = false
            allow = ["a.test", "@github"]
            deny = ["b.test"]
            ask = true
            read = ["data", "/abs", "~/shared"]
            write = ["out"]
            hide = ["secret"]
            unprotect = [".vscode"]
            publish = [8080, "127.0.0.1:9090:3000"]
            connect = [5432, "db.corp.example:6379", "/var/run/x/redis.sock"]
            env = ["TOKEN", "MODE=secret"]
            env-file = [".env"]
            quiet = true
            summary = "refused.md"
            [set]
            limits.pids = 500
            "limits.memory" = "4GiB"
            syscalls.allow = ["ptrace", "perf_event_open"]
        "#;
        let settings = parse(text).unwrap();
        assert_eq!(settings.policy.as_deref(), Some("/p/./mine.toml"));
        assert_eq!(
            settings.read,
            ["/p/data", "/abs", "/h/shared"].map(PathBuf::from)
        );
        let fields = settings.fields("/f").unwrap();
        let said: Vec<String> = fields
            .iter()
            .map(|one| format!("{} {}={} {}", one.option, one.field, one.value, one.adds))
            .collect();
        assert_eq!(
            said,
            [
                "set.limits.pids limits.pids=500 false",
                "set.limits.memory limits.memory=4GiB false",
                "set.syscalls.allow syscalls.allow=ptrace,perf_event_open false",
                "allow network.allow=a.test true",
                "allow network.allow=@github true",
                "deny network.deny=b.test true",
                "publish network.inbound=8080 true",
                "publish network.inbound=3000 true",
                "connect network.connect=5432 true",
                "connect network.connect=db.corp.example:6379 true",
                "connect network.connect=/run/x/redis.sock true",
                "unprotect filesystem.unprotected=.vscode true",
                "ask network.on-unknown=ask false",
            ]
        );
        assert!(fields.iter().all(|one| one.file.as_deref() == Some("/f")));
        let effects = settings.effects().join("\n");
        for word in [
            "a.test",
            "/p/out",
            "TOKEN",
            "limits.pids",
            "landlock",
            "/p/.env",
            "refused.md",
            "claude",
            "your tools run later: .vscode",
        ] {
            assert!(effects.contains(word), "{word}: {effects}");
        }
        assert!(
            !effects.contains("MODE=") && effects.contains("MODE"),
            "{effects}"
        );
        assert_eq!(settings.effects().len(), 27);
    }

    #[test]
    fn what_is_not_known_is_an_error_with_its_line() {
        for (text, word) in [
            ("\nallow-all = true", "line 2"),
            (
                "\nallow = \"a.test\"",
                "line 2: \"a.test\" is not a list; did you mean [\"a.test\"]?",
            ),
            ("read = \"~/x\"", "did you mean [\"~/x\"]?"),
            ("connect = \"5432\"", "did you mean [\"5432\"]?"),
            ("walls = \"none\"", "line 1"),
            ("[set]\nlimits.pidz = 1", "limits.pids"),
            ("[set]\nnetwork.limit = \"*\"", "--policy FILE"),
            ("[set]\nlimits.pids = 1.5", "a text, a number"),
            ("publish = [\"8080/udp\"]", "HOSTPORT"),
            ("connect = [\"5432/udp\"]", "HOST:PORT"),
            ("connect = [\"*\"]", "for ceilings"),
            ("connect = [\"~/x/redis.sock\"]", "whole path"),
            ("command = [\"sh\"]", "unknown field"),
            ("workspace = \"/\"", "unknown field"),
            ("agent = \"clod\"", "claude"),
            ("a = [", "line 1"),
        ] {
            let error = format!("{:#}", parse(text).unwrap_err());
            assert!(error.contains(word), "{text}: {error}");
        }
        let mine = |text: &str| Settings::parse(text, PathBase::of_person(Path::new("/h")));
        assert!(mine("read = [\"data\"]").is_err());
        assert!(mine("policy = \"mine.toml\"").is_err());
        assert_eq!(
            mine("read = [\"~/d\"]").unwrap().read,
            [PathBuf::from("/h/d")]
        );
        assert_eq!(mine("").unwrap(), Settings::default());
    }

    #[test]
    fn secrets_count_in_the_users_own_file_alone() {
        let text = "[[secret]]\nname = \"model\"\nfrom-env = \"MODEL_KEY\"\nenv = \"MODEL_KEY\"\n\
            requests = [\"POST https://a.test/v1/**\"]\nheader = \"x-api-key: {}\"\n";
        let own = |text: &str| Settings::parse(text, PathBase::of_person(Path::new("/h")));
        let settings = own(text).unwrap();
        assert_eq!(settings.secrets.len(), 1);
        assert_eq!(
            settings.effects(),
            ["keeps outside: secret model, from your variable MODEL_KEY"]
        );
        for elsewhere in [parse(text), Settings::parse(text, PathBase::of_answers())] {
            let why = elsewhere.unwrap_err().to_string();
            assert!(why.contains("~/.config/agentbox/config.toml"), "{why}");
        }
        let twice = own(&text.repeat(2)).unwrap_err().to_string();
        assert!(twice.contains("two secrets have the name model"), "{twice}");
        for (bad, word) in [
            (text.replace("https", "http"), "in the clear"),
            (text.replace("a.test", "*.test"), "does not name one host"),
            (text.replace("from-env", "environment"), "unknown field"),
        ] {
            let why = own(&bad).unwrap_err().to_string();
            assert!(why.contains(word), "{why}");
        }
    }
}
