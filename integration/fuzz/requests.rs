//! Requests and their rules: each has one form, and both ways to compare rules agree.

use agentbox::egress::http::head;
use agentbox::egress::request::{RequestHead, of_said, typed};
use agentbox::rules::request::cover::exceeds;
use agentbox::rules::request::decide::RequestDecision;
use agentbox::rules::request::{RequestRule, Scheme};
use agentbox::rules::{Decision, Denial, EgressRule, EgressRules};

/// Lines: a rule, another rule, and a request, as typed; or the head of a request.
pub fn request(data: &[u8]) {
    let to = || ("api.example.com".parse().unwrap(), 443);
    let said = head(data).ok().flatten().map(|head| {
        let said = RequestHead {
            method: head.method,
            target: head.target,
            host: head.host,
        };
        of_said(said, Scheme::Https, to())
    });
    if let Some(Ok(asked)) = said {
        let form = asked.to_string();
        assert_eq!(typed(&form).unwrap(), asked, "{form}");
        assert!(form.contains(" https://api.example.com/"), "{form}");
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let mut rules = Vec::new();
    for line in text.lines().take(8) {
        if let Ok(rule) = line.parse::<RequestRule>() {
            let again: RequestRule = rule.to_string().parse().unwrap();
            assert_eq!(again.to_string(), rule.to_string());
            rules.push(rule);
        }
        if let Ok(asked) = typed(line) {
            let form = asked.to_string();
            assert!(form.bytes().all(|b| b == b' ' || b.is_ascii_graphic()));
            assert_eq!(typed(&form).unwrap(), asked, "{form}");
            let path = form.split('?').next().unwrap_or_default();
            let (_, path) = path.split_once("://").unwrap();
            let odd = ["//", "/../", "/./", "\\", ";", "%00", "%2E", "%25"];
            assert!(odd.iter().all(|odd| !path.contains(odd)), "{form}");
            for rule in &rules {
                decided(&rules, rule, &asked.request);
            }
        }
    }
    let [first, second, ..] = &rules[..] else {
        return;
    };
    assert_eq!(exceeds(first, std::slice::from_ref(first)), None, "{first}");
    let Some(witness) = exceeds(first, std::slice::from_ref(second)) else {
        return;
    };
    // A witness for other methods or hosts has the form of a rule, so it is not a request.
    if let Ok(asked) = typed(&witness) {
        assert!(first.allows(&asked.request), "{witness}: {first}");
        assert!(!second.allows(&asked.request), "{witness}: {second}");
    }
}

fn decided(
    rules: &[RequestRule],
    denied: &RequestRule,
    request: &agentbox::rules::request::Request,
) {
    let open = EgressRules {
        allow: rules.iter().cloned().map(EgressRule::from).collect(),
        ..EgressRules::default()
    };
    let is_open = matches!(open.decide_request(request), RequestDecision::Allow(_));
    // Only a cloud metadata service's own name opens it, even if another rule allows the request.
    assert!(!is_open || rules.iter().any(|rule| rule.allows(request)));
    if is_open {
        assert!(open.plain_way(&request.host, request.port).is_some());
        assert!(matches!(
            open.decide(&request.host, request.port),
            Decision::Deny(Denial::OnlyRequests)
        ));
    }
    // The same rule as a deny rule denies each request that it allows, and the denial wins.
    assert!(
        !denied.allows(request) || denied.denies(request),
        "{denied}"
    );
    let closed = EgressRules {
        deny: [denied.clone().into()].into(),
        ..open
    };
    let by_rule = matches!(closed.decide_request(request), RequestDecision::DeniedBy(_));
    assert_eq!(by_rule, denied.denies(request), "{denied}");
}
