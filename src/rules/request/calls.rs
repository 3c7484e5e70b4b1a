//! The rules for calls: which requests must be read for them, and which names lists may show.

use serde::{Deserialize, Serialize};

use super::mcp::{NameGlob, listed_for};
use super::{Request, RequestRule};
use crate::rules::decide::EgressRules;
use crate::rules::host::Host;
use crate::rules::item::EgressRule;

/// Patterns of names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamePatterns {
    /// Shown names,
    pub allow: Vec<NameGlob>,
    /// unless one of these matches.
    pub deny: Vec<NameGlob>,
}

/// The names that an MCP server's lists may show.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct McpLists {
    /// Tools by their names,
    pub tools: NamePatterns,
    /// prompts by theirs,
    pub prompts: NamePatterns,
    /// and resources by their addresses.
    pub resources: NamePatterns,
}

impl EgressRules {
    /// Whether the decision needs the body of this request, which was not read yet, or its answer: a rule for calls
    /// denies something there, or only such a rule allows it.
    pub fn needs_calls(&self, request: &Request) -> bool {
        if request.calls.is_some() {
            return false;
        }
        let is_one = ["GET", "POST", "DELETE"].contains(&request.method.to_string().as_str());
        let denies = || self.denials_of_calls(request).next().is_some();
        let allows = || {
            let mut rules = self.requests();
            rules.any(|rule| rule.mcp().is_some() && rule.leads_to(request))
                && !self.allows_all(request)
        };
        is_one && (denies() || allows())
    }

    /// Whether a rule that is not for calls allows it, whatever its body.
    fn allows_all(&self, request: &Request) -> bool {
        let mut rules = self.requests().filter(|rule| rule.mcp().is_none());
        rules.any(|rule| rule.allows(request))
            || self.opened_by(&request.host, request.port).is_some()
    }

    fn denials_of_calls<'a>(
        &'a self,
        request: &'a Request,
    ) -> impl Iterator<Item = &'a RequestRule> {
        let rules = self.deny.iter().filter_map(EgressRule::request);
        let rules = rules.filter(|rule| rule.mcp().is_some());
        rules.filter(move |rule| {
            let mut others = self.spellings_of(&request.host).into_iter().map(Host::Name);
            rule.denies_something_of(request)
                || others.any(|host| {
                    rule.denies_something_of(&Request {
                        host,
                        ..request.clone()
                    })
                })
        })
    }

    /// The names that lists in the answer may show: the allowed ones, or all if a rule names the list itself.
    pub fn lists(&self, request: &Request) -> McpLists {
        let shown = |list: &str| {
            let by = listed_for(list).unwrap_or(list);
            let posted = Request {
                method: "POST".parse().unwrap_or_else(|_| request.method.clone()),
                ..request.clone()
            };
            let rules = self.requests().filter_map(|rule| {
                let words = rule.mcp().filter(|_| rule.leads_to(request))?;
                Some(words)
            });
            let rules: Vec<_> = rules.collect();
            let is_named = rules.iter().any(|words| words.names(list).next().is_some());
            let allow = match is_named || self.allows_all(&posted) {
                true => vec![NameGlob::any()],
                false => {
                    let names = rules.iter().flat_map(|words| words.names(by));
                    names.cloned().collect()
                }
            };
            let deny = self.denials_of_calls(request).filter_map(RequestRule::mcp);
            let deny = deny.flat_map(|words| words.names(by).cloned().collect::<Vec<_>>());
            NamePatterns {
                allow,
                deny: deny.collect(),
            }
        };
        McpLists {
            tools: shown("tools/list"),
            prompts: shown("prompts/list"),
            resources: shown("resources/list"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::request::allows as allowed;
    use crate::egress::request::typed;
    use crate::rules::RequestDecision;
    use crate::rules::samples::rules;

    #[test]
    fn a_call_is_allowed_by_endpoint_method_and_name() {
        let rules = rules(
            &[
                "mcp:https://mcp.test/mcp tools/call:search_* tools/call:read",
                "mcp:https://mcp.test/other prompts/get",
                "mcp.test:8443",
            ],
            &[
                "mcp:https://mcp.test/mcp tools/call:search_secret",
                "mcp:https://mcp.test:8443/x tools/call:delete_*",
            ],
        );
        for (text, expected) in [
            ("mcp:https://mcp.test/mcp tools/call:search_code", true),
            ("mcp:https://mcp.test/mcp tools/call:search_secret", false),
            ("mcp:https://mcp.test/mcp tools/call:Search_Secret", false),
            ("mcp:https://mcp.test/mcp tools/call:search_code x", true),
            ("mcp:https://mcp.test/mcp tools/call:delete", false),
            ("mcp:https://mcp.test/mcp tools/list", true),
            ("mcp:https://mcp.test/mcp initialize", true),
            ("mcp:https://mcp.test/mcp prompts/get:a", false),
            ("mcp:https://mcp.test/other prompts/get:a", true),
            ("mcp:https://mcp.test/none initialize", false),
            ("mcp:http://mcp.test/mcp initialize", false),
            ("mcp:https://mcp.test:8443/x tools/call:read", true),
            ("mcp:https://mcp.test:8443/X tools/call:delete_it", false),
            ("GET https://mcp.test/mcp", true),
            ("DELETE https://mcp.test/mcp?x", true),
            ("POST https://mcp.test/mcp", false),
            ("PUT https://mcp.test/mcp", false),
            ("WEBSOCKET https://mcp.test/mcp", false),
            ("POST https://mcp.test:8443/y", true),
        ] {
            assert_eq!(allowed(&rules, text), expected, "{text}");
            let asked = typed(text).unwrap();
            assert_eq!(asked.to_string(), text);
        }
        // The rule that is offered allows this call alone, or there is none.
        for (call, offered) in [
            ("tools/call:a", true),
            ("tools/call:search tools/call", false),
            ("tools/call:x resources/read prompts/get", false),
            ("tools/call:a*", false),
            ("tools/call:a,b", false),
            ("prompts/list", true),
        ] {
            let mut asked = typed("POST https://mcp.test/mcp").unwrap();
            asked.request.calls = Some(vec![call.parse().unwrap()]);
            assert_eq!(asked.rule().is_some(), offered, "{call}");
        }
        let needs = |text: &str| rules.needs_calls(&typed(text).unwrap().request);
        assert!(needs("POST https://mcp.test/mcp") && needs("GET https://mcp.test/mcp"));
        assert!(needs("POST https://mcp.test:8443/x"));
        assert!(!needs("POST https://mcp.test:8443/y") && !needs("PUT https://mcp.test/mcp"));
        // Each call of a batch may have its own rule. Answers need only the endpoint.
        let batch = |calls: &[&str]| {
            let mut asked = typed("POST https://mcp.test/mcp").unwrap();
            asked.request.calls = Some(calls.iter().map(|call| call.parse().unwrap()).collect());
            matches!(
                rules.decide_request(&asked.request),
                RequestDecision::Allow(_)
            )
        };
        assert!(batch(&["tools/call:read", "ping"]) && batch(&[]));
        assert!(!batch(&["tools/call:read", "tools/call:delete"]));
        let shown = rules.lists(&typed("GET https://mcp.test/mcp").unwrap().request);
        let texts = |globs: &[NameGlob]| globs.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(texts(&shown.tools.allow), ["read", "search_*"]);
        assert_eq!(texts(&shown.tools.deny), ["search_secret"]);
        assert!(shown.prompts.allow.is_empty());
        let shown = rules.lists(&typed("GET https://mcp.test:8443/x").unwrap().request);
        assert_eq!(texts(&shown.tools.allow), ["*"]);
        assert_eq!(texts(&shown.tools.deny), ["delete_*"]);
    }
}
