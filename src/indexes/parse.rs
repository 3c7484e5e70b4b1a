//! PURE. Parses the answers of package managers. No host is known here, only where each manager writes its own.

use std::net::IpAddr;

use serde_json::Value;

use crate::rules::address::{AddressRefusal, Surroundings, vet};
use crate::rules::{Host, HostReach, NetworkRule, RuleTarget};

/// The host and port of an http or https URL, without a password or path.
pub fn host(url: &str) -> Option<NetworkRule> {
    let (scheme, rest) = url.trim().split_once("://")?;
    let default = match scheme {
        "https" => 443,
        "http" => 80,
        _ => return None,
    };
    let authority = rest.split(['/', '?', '#']).next()?;
    let authority = authority.rsplit('@').next()?;
    let (name, port) = match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()?),
        _ => (authority, default),
    };
    let target = match name.parse().ok()? {
        Host::Name(name) => RuleTarget::Name(name),
        Host::Address(address) => RuleTarget::address(address),
    };
    (port != 0).then(|| NetworkRule::allowing(target, port))
}

/// `pip install --help`: the option's text ends with the current value, configured or built in.
pub fn pip_index(help: &str) -> Option<String> {
    let (_, text) = help.split_once("--index-url")?;
    let (_, text) = text.split_once("(default")?;
    let (url, _) = text.split_once(')')?;
    Some(url.trim().to_owned())
}

/// `pip config list`: the URLs of further indexes and of pages with links.
pub fn pip_more(config: &str) -> Vec<String> {
    config
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(key, _)| key.ends_with(".extra-index-url") || key.ends_with(".find-links"))
        // A Python string; several values have escaped line ends between them.
        .flat_map(|(_, value)| {
            value
                .trim_matches(['\'', '"'])
                .replace("\\n", " ")
                .split_whitespace()
                .filter(|word| word.contains("://"))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}

/// `pip install --report -`: the URL from which it would fetch the package.
pub fn pip_file(report: &str) -> Option<String> {
    let report: Value = serde_json::from_str(report).ok()?;
    let url = report.pointer("/install/0/download_info/url")?.as_str()?;
    Some(url.to_owned())
}

/// `npm config list --json`: the current registry, and those of scopes.
pub fn npm_registries(config: &str) -> Option<(String, Vec<String>)> {
    let config: Value = serde_json::from_str(config).ok()?;
    let scopes = config
        .as_object()?
        .iter()
        .filter(|(key, _)| key.starts_with('@') && key.ends_with(":registry"))
        .filter_map(|(_, url)| url.as_str().map(str::to_owned))
        .collect();
    Some((config.get("registry")?.as_str()?.to_owned(), scopes))
}

/// The indexes in cargo's configuration.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct CargoIndexes {
    /// URLs of sources and registries on the network.
    pub urls: Vec<String>,
    /// Whether crates come only from a directory of the node.
    pub offline: bool,
}

/// `config.toml` of cargo. Sources other than the replacement of its default count if a registry names them.
pub fn cargo_config(text: &str) -> Option<CargoIndexes> {
    let config: toml::Table = text.parse().ok()?;
    let table = |name: &str| config.get(name).and_then(toml::Value::as_table);
    let mut found = CargoIndexes::default();
    for registry in table("registries")
        .into_iter()
        .flat_map(toml::Table::values)
    {
        found.urls.extend(text_of(registry, "index"));
    }
    let mut source = table("source").and_then(|all| all.get("crates-io"));
    // Each names the next; a chain is no longer than the table.
    for _ in 0..table("source").map_or(0, toml::Table::len) {
        let next = source.and_then(|source| text_of(source, "replace-with"));
        let Some(next) = next else { break };
        source = table("source").and_then(|all| all.get(&next));
    }
    if let Some(source) = source {
        found.urls.extend(text_of(source, "registry"));
        found.offline = source.get("directory").is_some() || source.get("local-registry").is_some();
    }
    for url in &mut found.urls {
        if let Some(plain) = url.strip_prefix("sparse+") {
            *url = plain.to_owned();
        }
    }
    Some(found)
}

/// The part of cargo's `config.toml` that says where crates come from. The rest names programs too (`credential-provider`,
/// `rustc-wrapper`), and cargo runs them.
pub fn cargo_sources(text: &str) -> Option<String> {
    const KEPT: [(&str, &[&str]); 2] = [
        (
            "source",
            &["registry", "replace-with", "directory", "local-registry"],
        ),
        ("registries", &["index"]),
    ];
    let config: toml::Table = text.parse().ok()?;
    let mut kept = toml::Table::new();
    for (name, keys) in KEPT {
        let sources = config.get(name).and_then(toml::Value::as_table);
        let sources = sources.into_iter().flatten().map(|(source, table)| {
            let keys = keys
                .iter()
                .filter_map(|key| Some(((*key).to_owned(), text_of(table, key)?.into())));
            (source.clone(), toml::Value::Table(keys.collect()))
        });
        kept.insert(name.to_owned(), toml::Value::Table(sources.collect()));
    }
    toml::to_string(&kept).ok()
}

fn text_of(table: &toml::Value, key: &str) -> Option<String> {
    table.get(key)?.as_str().map(str::to_owned)
}

/// The host in cargo's name of an index directory: `HOST-HASH`.
pub fn cargo_directory(name: &str) -> Option<NetworkRule> {
    let (name, hash) = name.rsplit_once('-')?;
    let hexadecimal = !hash.is_empty() && hash.bytes().all(|b| b.is_ascii_hexdigit());
    hexadecimal
        .then(|| host(&format!("https://{name}/")))
        .flatten()
}

/// An index's `config.json`: the URL of its crates.
pub fn cargo_files(config: &str) -> Option<String> {
    let config: Value = serde_json::from_str(config).ok()?;
    Some(config.get("dl")?.as_str()?.to_owned())
}

/// `go env GOPROXY`: the proxies, and whether modules may come from anywhere (`direct`).
pub fn go_proxies(value: &str) -> (Vec<String>, bool) {
    let words = || value.trim().split([',', '|']).map(str::trim);
    let urls = words()
        .filter(|word| word.contains("://"))
        .map(str::to_owned)
        .collect();
    (urls, words().any(|word| word == "direct"))
}

/// `go env GOSUMDB`: a name, its key, perhaps its URL; the proxy may answer for it.
pub fn go_sums(value: &str) -> Option<String> {
    let mut words = value.split_whitespace();
    let name = words.next().filter(|name| *name != "off")?;
    Some(match words.next() {
        Some(url) if url.contains("://") => url.to_owned(),
        _ => format!("https://{}", name.split('+').next().unwrap_or(name)),
    })
}

/// `getent ahosts NAME`: whether any of the addresses is private.
pub fn is_private(answer: &str) -> bool {
    answer
        .lines()
        .filter_map(|line| line.split_whitespace().next())
        .filter_map(|word| word.parse::<IpAddr>().ok())
        .any(|address| {
            vet(address, HostReach::Public, &Surroundings::default())
                == Err(AddressRefusal::Private)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(url: &str) -> String {
        host(url).map_or("none".to_owned(), |rule| rule.to_string())
    }

    #[test]
    fn no_program_of_cargos_configuration_is_passed_on() {
        let text = r#"
            [source.crates-io]
            replace-with = "company"
            [source.company]
            registry = "sparse+https://crates.test/"
            [registries.company]
            index = "sparse+https://crates.test/"
            credential-provider = ["cargo:token-from-stdout", "/bin/sh", "-c", "id"]
            [registry]
            global-credential-providers = ["/bin/sh"]
            [build]
            rustc-wrapper = "/bin/sh"
            [alias]
            generate-lockfile = "run"
        "#;
        let kept = cargo_sources(text).unwrap();
        assert!(!kept.contains("sh\"") && !kept.contains("alias"), "{kept}");
        let (before, after) = (cargo_config(text).unwrap(), cargo_config(&kept).unwrap());
        assert_eq!(before.urls, after.urls);
    }

    #[test]
    fn takes_only_the_host_and_port_of_a_url() {
        for (url, expected) in [
            ("https://index.test/simple", "index.test"),
            ("https://index.test", "index.test"),
            ("https://index.test:443/", "index.test"),
            ("https://Index.test:8443?x", "index.test:8443"),
            ("http://index.test/a@b", "index.test:80"),
            ("https://user:pa@ss@index.test/", "index.test"),
            ("https://192.0.2.1:8080/", "192.0.2.1:8080"),
            ("https://[2001:db8::1]/", "2001:db8::1"),
            ("https://[2001:db8::1]:8443/", "[2001:db8::1]:8443"),
            ("https://internal:8080/", "internal:8080"),
            ("https://*/", "none"),
            ("https://*.test/", "none"),
            ("https:///path", "none"),
            ("https://index.test:0/", "none"),
            ("https://index.test:99999/", "none"),
            ("https://index.test:/", "none"),
            ("ftp://index.test/", "none"),
            ("file:///srv/index", "none"),
            ("index.test", "none"),
            ("", "none"),
        ] {
            assert_eq!(rule(url), expected, "{url}");
        }
    }

    #[test]
    fn reads_pip() {
        let help = "  -i, --index-url <url>  Base URL of the Python Package Index (default https://a.test/simple). This \
                    should point\n  --extra-index-url <url>  Extra URLs (default x)";
        assert_eq!(pip_index(help).as_deref(), Some("https://a.test/simple"));
        assert_eq!(pip_index("--index-url without"), None);
        let config = ":env:.find-links='/opt/wheels'\nglobal.index-url='https://a.test/simple'\n\
                      global.extra-index-url='\\nhttps://b.test/simple\\nhttps://c.test/simple'\n\
                      install.find-links='https://d.test/links.html'\nnonsense";
        assert_eq!(
            pip_more(config),
            [
                "https://b.test/simple",
                "https://c.test/simple",
                "https://d.test/links.html"
            ]
        );
        let report =
            r#"{"version": "1", "install": [{"download_info": {"url": "https://f.test/x.whl"}}]}"#;
        assert_eq!(pip_file(report).as_deref(), Some("https://f.test/x.whl"));
        for bad in ["", "{}", r#"{"install": []}"#, r#"{"install": [{}]}"#] {
            assert_eq!(pip_file(bad), None);
        }
    }

    #[test]
    fn reads_npm() {
        let config = r#"{"registry": "https://a.test/", "@corp:registry": "https://b.test/npm/", "cache": "/x"}"#;
        assert_eq!(
            npm_registries(config),
            Some(("https://a.test/".into(), vec!["https://b.test/npm/".into()]))
        );
        assert_eq!(npm_registries("{}"), None);
        assert_eq!(npm_registries("npm warn"), None);
    }

    #[test]
    fn reads_cargo() {
        let config = r#"
            [registries.corp]
            index = "sparse+https://corp.test/index/"
            [source.crates-io]
            replace-with = "one"
            [source.one]
            replace-with = "two"
            [source.two]
            registry = "sparse+https://mirror.test/index/"
            [source.unused]
            registry = "https://unused.test/index"
        "#;
        let urls = |text: &str| cargo_config(text).unwrap().urls;
        assert_eq!(
            urls(config),
            ["https://corp.test/index/", "https://mirror.test/index/"]
        );
        assert_eq!(urls("[build]\njobs = 2"), [""; 0]);
        assert_eq!(
            urls("[source.crates-io]\nreplace-with = 'crates-io'"),
            [""; 0]
        );
        let vendored = "[source.crates-io]\nreplace-with = 'v'\n[source.v]\ndirectory = '/v'";
        assert!(cargo_config(vendored).unwrap().offline);
        assert_eq!(cargo_config("not toml"), None);
        let directory = |name: &str| cargo_directory(name).map(|rule| rule.to_string());
        assert_eq!(
            directory("my-index.test-0123456789abcdef").as_deref(),
            Some("my-index.test")
        );
        assert_eq!(directory("index.test"), None);
        assert_eq!(directory("index.test-"), None);
        let dl = r#"{"dl": "https://f.test/{crate}/{version}", "api": "https://g.test"}"#;
        assert_eq!(
            cargo_files(dl).as_deref(),
            Some("https://f.test/{crate}/{version}")
        );
    }

    #[test]
    fn reads_go() {
        let (urls, direct) = go_proxies("https://a.test/go|https://b.test,direct\n");
        assert_eq!((urls.len(), direct), (2, true));
        assert_eq!(go_proxies("off"), (vec![], false));
        assert_eq!(go_sums("sums.test\n").as_deref(), Some("https://sums.test"));
        assert_eq!(
            go_sums("sums.test+abc+def").as_deref(),
            Some("https://sums.test")
        );
        assert_eq!(
            go_sums("sums.test https://b.test/sumdb").as_deref(),
            Some("https://b.test/sumdb")
        );
        assert_eq!(go_sums("off\n"), None);
        assert_eq!(go_sums("\n"), None);
    }

    #[test]
    fn knows_private_answers() {
        assert!(is_private("10.1.2.3      STREAM a.test\n10.1.2.3 DGRAM\n"));
        assert!(is_private("203.0.113.1 STREAM\nfd00::1 STREAM\n"));
        assert!(!is_private("203.0.113.1 STREAM\n2001:db8::1 STREAM\n"));
        assert!(!is_private("127.0.0.1 STREAM\n"));
        assert!(!is_private("nonsense\n"));
    }
}
