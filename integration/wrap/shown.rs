//! `report.denied` for commands of `wrap`.

use super::account::Account;
use crate::docker::Docker;

#[test]
#[ignore = "needs the rig: hack/test"]
fn a_command_of_wrap_reads_it_too_as_root_and_as_an_ordinary_user() {
    let _docker = Docker::connect();
    let person = Account::new();
    let script = "python3 -c 'import ctypes; ctypes.CDLL(None).mount(None, None, None, 0, None)'; for i in $(seq 300); do grep -q mount /run/agentbox/denied && break; sleep 0.1; done; \
                  cat /run/agentbox/denied; echo forged >/run/agentbox/denied && echo written; true";
    for policy in ["strict", "standard"] {
        let set = ["--policy", policy, "--set", "report.denied=on"];
        let seen = person.wraps(&set, script).ok();
        assert!(seen.contains("syscalls mount(...)"), "{policy}: {seen}");
        assert!(!seen.contains("written"), "{policy}: {seen}");
        let root = person.wrap(&set, script).ok();
        assert!(root.contains("syscalls mount(...)"), "{policy}: {root}");
        assert!(!root.contains("written"), "{policy}: {root}");
    }
}
