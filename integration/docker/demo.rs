//! `hack/demo`, as a newcomer runs it: its promises hold under every policy.

use crate::command::run;

#[test]
#[ignore = "needs the rig: hack/test"]
fn the_demo_shows_that_work_is_done_and_the_rest_is_denied() {
    super::require_rig();
    let demo = concat!(env!("CARGO_MANIFEST_DIR"), "/hack/demo");
    for policy in ["strict", "standard", "permissive"] {
        let shown = run(demo, &["--policy", policy]).ok();
        assert!(shown.contains("the agent tried to"), "{policy}: {shown}");
    }
}
