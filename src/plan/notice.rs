//! PURE. Requests that were not granted, in words, and the line of them that begins a container's standard error
//! (`report.notice`).

use std::path::Path;

use super::decided::Plan;
use super::reason::OmittedItem;
use super::{join, text};
use crate::policy::{Field, Tool};
use crate::text::{bounded, escape};

/// The most requests that it names.
const MOST: usize = 3;
/// The most characters of one of them.
const LONGEST: usize = 160;
/// The most capabilities that one request names.
const MOST_NAMES: usize = 4;

impl Plan {
    /// What the caller requested and does not get, as phrases. Requests of every engine are not among them. Paths of
    /// the node are not: the workload may read them.
    pub fn not_granted(&self, tool: Tool) -> Vec<String> {
        let pruned = self.filesystem.pruned.iter();
        let pruned = pruned.filter(|mount| !mount.of_every_engine);
        let mut all: Vec<String> = pruned
            .map(|mount| format!("{} is not mounted", path(&mount.destination)))
            .collect();
        let items = self.not_given.iter();
        all.extend(
            items
                .filter(|i| !i.is_of_every_engine())
                .map(|item| match item {
                    OmittedItem::HostNetwork => {
                        let adds = tool.adds(Field::NetworkAllow, &["HOST"]);
                        format!("the host's network ({adds} opens a host)")
                    }
                    item => escape(&item.words(MOST_NAMES)),
                }),
        );
        all.extend(self.network.leads_nowhere.keys().map(|port| {
            let sets = self.network.lets_in(*port, tool);
            format!("published port {port} leads nowhere ({sets} lets it in)")
        }));
        all
    }

    /// What was requested and not granted, in words, mounts first.
    pub fn left_out(&self) -> Vec<String> {
        let mounts = self.filesystem.pruned.iter().map(|m| {
            let (at, from) = (text::of(&m.destination), text::of(&m.source));
            format!("the mount at {at} (from {from}): {}", m.why)
        });
        mounts
            .chain(self.not_given.iter().map(ToString::to_string))
            .collect()
    }

    /// The line, with its end; `None` if there is nothing to tell, or the policy wants no line, as the built-in ones.
    pub fn notice(&self, id: &str, tool: Tool) -> Option<String> {
        if !self.report.notice {
            return None;
        }
        let all = self.not_granted(tool);
        let named: Vec<String> = (all.iter().take(MOST))
            .map(|one| bounded(one, LONGEST))
            .collect();
        let more = match all.len().saturating_sub(MOST) {
            0 if named.is_empty() => return None,
            0 => String::new(),
            more => format!("; and {more} more"),
        };
        let (named, id) = (named.join("; "), escape(join::short(id)));
        Some(format!(
            "agentbox: not granted: {named}{more}; agentbox explain {id} has the reasons\n"
        ))
    }
}

fn path(path: &Path) -> String {
    escape(&path.display().to_string())
}

#[cfg(test)]
mod tests {
    use crate::plan::tests::sample;
    use crate::plan::{OmittedItem, OmittedMount};
    use crate::policy::Tool;

    fn omitted(destination: &str) -> OmittedMount {
        OmittedMount {
            destination: destination.into(),
            source: "/srv/secret-place".into(),
            why: "it holds keys".to_owned(),
            of_every_engine: false,
        }
    }

    /// What every engine requests is no request of the caller.
    #[test]
    fn an_ordinary_container_gets_no_line() {
        let mut plan = sample();
        plan.report.notice = true;
        plan.not_given = vec![OmittedItem::EngineCapabilities {
            names: vec!["MKNOD".to_owned()],
        }];
        plan.filesystem.pruned = vec![OmittedMount {
            of_every_engine: true,
            ..omitted("/token")
        }];
        assert_eq!(plan.not_granted(Tool::Engine), Vec::<String>::new());
        assert_eq!(plan.notice("a", Tool::Engine), None);
    }

    /// The program was told of a local network, and its caller nothing.
    #[test]
    fn the_hosts_network_is_named_with_the_option_that_opens_a_host() {
        let mut plan = sample();
        plan.report.notice = true;
        plan.not_given = vec![OmittedItem::HostNetwork];
        let line = plan.notice("a", Tool::Annotating).unwrap();
        assert!(
            line.contains(
                "not granted: the host's network (--annotation dev.agentbox.network.allow=+,HOST opens a host)"
            ),
            "{line}"
        );
    }

    #[test]
    fn the_line_names_requests_of_the_caller_and_no_path_of_the_node() {
        let mut plan = sample();
        plan.report.notice = true;
        plan.filesystem.pruned = vec![omitted("/keys\n")];
        plan.not_given = vec![
            OmittedItem::MountOptions {
                destination: "/data".into(),
                options: vec!["rw".to_owned(), "exec".to_owned()],
            },
            OmittedItem::Capabilities {
                names: ["A", "B", "C", "D", "E", "F"].map(str::to_owned).into(),
            },
        ];
        plan.network.leads_nowhere = [(8000, [28088].into())].into();
        let line = plan.notice(&"5".repeat(64), Tool::Engine).unwrap();
        assert_eq!(
            line,
            "agentbox: not granted: /keys\\n is not mounted; /data is read-only and lacks the options exec; capabilities A, B, C, D and 2 more; and 1 more; \
             agentbox explain 555555555555 has the reasons\n"
        );
        plan.filesystem.pruned.clear();
        let line = plan.notice("a", Tool::Engine).unwrap();
        assert!(
            line.contains("published port 8000 leads nowhere (dev.agentbox.network.inbound=8000"),
            "{line}"
        );
        assert!(!line.contains("28088") && !line.contains("/srv"), "{line}");
        // A mount point may be as long as a path.
        plan.filesystem.pruned = vec![omitted(&format!("/{}", "x/".repeat(2000)))];
        assert!(plan.notice("a", Tool::Engine).unwrap().len() < 1024);
        plan.report.notice = false;
        assert_eq!(plan.notice("a", Tool::Engine), None);
    }
}
