//! From rules to a graph of tests that shares equal parts.
//!
//! The number is found by a binary search over ranges of equal verdict, followed by chains of argument checks. The
//! graph is built from its ends, so every edge goes forward, as the jumps of classic BPF require.

use std::collections::HashMap;

use super::interp::{ARGS, NUMBER};
use super::program::{JUMP_EQ, JUMP_GE, JUMP_GT, JUMP_SET};
use super::rule::{Condition, Op, PLAIN, Rule, SyscallVerdict, Width};

/// A node of the graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Id(pub u32);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Node {
    /// Load a word of `struct seccomp_data` into the accumulator.
    Load {
        offset: u32,
        next: Id,
    },
    And {
        mask: u32,
        next: Id,
    },
    /// A test; `code` is one of the conditional jumps.
    Test {
        code: u16,
        k: u32,
        yes: Id,
        no: Id,
    },
    Return(u32),
}

/// How our own errno verdicts are compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denials {
    Errno,
    /// As notifications, except for errnos in [`PLAIN`].
    Notify,
    /// As notifications.
    NotifyAll,
}

/// The graph under construction. Equal nodes are one node.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
    ids: HashMap<Node, Id>,
}

impl Graph {
    fn add(&mut self, node: Node) -> Id {
        if let Some(id) = self.ids.get(&node) {
            return *id;
        }
        let id =
            Id(u32::try_from(self.nodes.len()).expect("a graph is bounded by what is in memory"));
        self.nodes.push(node);
        self.ids.insert(node, id);
        id
    }

    pub(super) fn ret(&mut self, verdict: SyscallVerdict) -> Id {
        self.add(Node::Return(verdict.to_raw()))
    }

    fn denial(&mut self, verdict: SyscallVerdict, denials: Denials) -> Id {
        match (verdict, denials) {
            // 0 denies nothing, so there is nothing to log.
            (SyscallVerdict::Errno(errno @ 1..), Denials::Notify) if !PLAIN.contains(&errno) => {
                self.ret(SyscallVerdict::Notify(errno))
            }
            (SyscallVerdict::Errno(errno @ 1..), Denials::NotifyAll) => {
                self.ret(SyscallVerdict::Notify(errno))
            }
            (verdict, Denials::Errno | Denials::Notify | Denials::NotifyAll) => self.ret(verdict),
        }
    }

    pub(super) fn load(&mut self, offset: u32, next: Id) -> Id {
        // A return does not depend on the loaded word.
        match self.nodes[next.0 as usize] {
            Node::Return(_) => next,
            Node::Load { .. } | Node::And { .. } | Node::Test { .. } => {
                self.add(Node::Load { offset, next })
            }
        }
    }

    pub(super) fn test(&mut self, code: u16, k: u32, yes: Id, no: Id) -> Id {
        if yes == no {
            yes
        } else {
            self.add(Node::Test { code, k, yes, no })
        }
    }

    /// All rules at once: the strictest verdict; the first rule's if two are equally strict.
    pub(super) fn rules(&mut self, rules: &[&Rule], denials: Denials) -> Id {
        if rules.iter().all(|rule| rule.cases.is_empty()) {
            // Nine of ten cases: nothing to build.
            let verdict = rules.iter().fold(SyscallVerdict::Allow, |so_far, rule| {
                so_far.stricter(rule.otherwise)
            });
            return self.denial(verdict, denials);
        }
        let start = ConditionAt {
            rule: 0,
            case: 0,
            condition: 0,
            so_far: SyscallVerdict::Allow,
        };
        Chain {
            graph: self,
            rules,
            denials,
            memo: HashMap::new(),
        }
        .build((start, Some(NUMBER)))
    }

    /// A binary search over ranges: each entry has a range's first number and its node. The number is loaded.
    pub(super) fn search(&mut self, ranges: &[(u32, Id)]) -> Id {
        match ranges {
            [] => unreachable!("every number is in a range"),
            [(_, only)] => *only,
            // One number among equal neighbours: the most common case, with one test instead of two.
            [(_, around), (number, at), (after, same)]
                if around == same && number + 1 == *after =>
            {
                self.test(JUMP_EQ, *number, *at, *around)
            }
            _ => {
                let (low, high) = ranges.split_at(ranges.len() / 2);
                let start = high[0].0;
                let (no, yes) = (self.search(low), self.search(high));
                self.test(JUMP_GE, start, yes, no)
            }
        }
    }
}

/// A position in a list of rules: the next condition to test, of this case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct ConditionAt {
    rule: usize,
    case: usize,
    condition: usize,
    /// The verdict of the rules before this one.
    so_far: SyscallVerdict,
}

/// The next step after a test of one word.
enum NextTest {
    At(ConditionAt),
    Test(Box<Word>),
}

/// A test of one half of an argument.
struct Word {
    offset: u32,
    mask: Option<u32>,
    code: u16,
    k: u32,
    yes: NextTest,
    no: NextTest,
}

/// A position, and the word that the accumulator holds there.
type NodeKey = (ConditionAt, Option<u32>);

struct Chain<'a> {
    graph: &'a mut Graph,
    rules: &'a [&'a Rule],
    denials: Denials,
    memo: HashMap<NodeKey, Id>,
}

impl Chain<'_> {
    /// Builds the node of a position. It uses its own stack: an engine's profile may be too long for recursion.
    fn build(&mut self, start: NodeKey) -> Id {
        let mut todo = vec![start];
        loop {
            let key = *todo
                .last()
                .expect("the first is popped last, and ends this");
            match self.condition(key) {
                Err(first) => todo.push(first),
                Ok(id) => {
                    self.memo.insert(key, id);
                    todo.pop();
                    if todo.is_empty() {
                        return id;
                    }
                }
            }
        }
    }

    /// The node that tests the condition of a position, or the position that must be built first.
    fn condition(&mut self, (at, loaded): NodeKey) -> Result<Id, NodeKey> {
        let rule = self.rules[at.rule];
        let Some(case) = rule.cases.get(at.case) else {
            return self.decided(at, rule.otherwise, loaded);
        };
        let Some(condition) = case.when.get(at.condition) else {
            return self.decided(at, case.then, loaded);
        };
        let pass = ConditionAt {
            condition: at.condition + 1,
            ..at
        };
        let fail = ConditionAt {
            case: at.case + 1,
            condition: 0,
            ..at
        };
        self.next(words(condition, pass, fail), loaded)
    }

    fn decided(
        &mut self,
        at: ConditionAt,
        verdict: SyscallVerdict,
        loaded: Option<u32>,
    ) -> Result<Id, NodeKey> {
        let so_far = at.so_far.stricter(verdict);
        if at.rule + 1 < self.rules.len() {
            return self.built((
                ConditionAt {
                    rule: at.rule + 1,
                    case: 0,
                    condition: 0,
                    so_far,
                },
                loaded,
            ));
        }
        Ok(self.graph.denial(so_far, self.denials))
    }

    fn built(&self, key: NodeKey) -> Result<Id, NodeKey> {
        self.memo.get(&key).copied().ok_or(key)
    }

    fn next(&mut self, next: NextTest, loaded: Option<u32>) -> Result<Id, NodeKey> {
        let word = match next {
            NextTest::At(at) => return self.built((at, loaded)),
            NextTest::Test(word) => *word,
        };
        let after = if word.mask.is_some() {
            None
        } else {
            Some(word.offset)
        };
        let (yes, no) = (self.next(word.yes, after)?, self.next(word.no, after)?);
        if yes == no {
            return Ok(yes);
        }
        let mut id = self.graph.test(word.code, word.k, yes, no);
        if let Some(mask) = word.mask {
            id = self.graph.add(Node::And { mask, next: id });
        }
        Ok(if loaded == Some(word.offset) {
            id
        } else {
            self.graph.load(word.offset, id)
        })
    }
}

/// A condition as tests of 32-bit words.
fn words(condition: &Condition, pass: ConditionAt, fail: ConditionAt) -> NextTest {
    let low = ARGS + 8 * u32::from(condition.arg);
    let (value_low, value_high) = halves(condition.value);
    let word = |offset, code, k, yes, no| {
        NextTest::Test(Box::new(Word {
            offset,
            mask: None,
            code,
            k,
            yes,
            no,
        }))
    };
    let masked = |offset, mask: u32, k: u32, yes: NextTest, no: NextTest| match (mask, k) {
        (0, 0) => yes,
        (0, _) => no,
        (u32::MAX, _) => word(offset, JUMP_EQ, k, yes, no),
        // JUMP_SET keeps the accumulator for the next test.
        (_, 0) => word(offset, JUMP_SET, mask, no, yes),
        _ => NextTest::Test(Box::new(Word {
            offset,
            mask: Some(mask),
            code: JUMP_EQ,
            k,
            yes,
            no,
        })),
    };
    // gt and ge compare the high half first; lt and le are their opposites.
    let ordered = |code, pass: ConditionAt, fail: ConditionAt| match condition.width {
        Width::Int => word(low, code, value_low, NextTest::At(pass), NextTest::At(fail)),
        Width::Long => {
            let low_half = word(low, code, value_low, NextTest::At(pass), NextTest::At(fail));
            let equal = word(low + 4, JUMP_EQ, value_high, low_half, NextTest::At(fail));
            word(low + 4, JUMP_GT, value_high, NextTest::At(pass), equal)
        }
    };
    let equal = |mask: u64, pass: ConditionAt, fail: ConditionAt| {
        let (mask_low, mask_high) = halves(mask);
        let low_half = masked(
            low,
            mask_low,
            value_low,
            NextTest::At(pass),
            NextTest::At(fail),
        );
        match condition.width {
            Width::Int => low_half,
            Width::Long => masked(low + 4, mask_high, value_high, low_half, NextTest::At(fail)),
        }
    };
    match condition.op {
        Op::Eq => equal(u64::MAX, pass, fail),
        Op::Ne => equal(u64::MAX, fail, pass),
        Op::MaskedEq(mask) => equal(mask, pass, fail),
        Op::Gt => ordered(JUMP_GT, pass, fail),
        Op::Ge => ordered(JUMP_GE, pass, fail),
        Op::Le => ordered(JUMP_GT, fail, pass),
        Op::Lt => ordered(JUMP_GE, fail, pass),
    }
}

const fn halves(value: u64) -> (u32, u32) {
    (value as u32, (value >> 32) as u32)
}
