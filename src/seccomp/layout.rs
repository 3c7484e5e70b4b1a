//! From a graph of tests to a program: the position of each node, and jumps that are too far for a comparison.

use super::graph::{Graph, Id, Node};
use super::program::{
    AND, FilterProgram, Instruction, JUMP, LOAD, MAX_INSTRUCTIONS, ProgramError, RETURN,
};

impl Graph {
    /// The graph from this node on, as a program.
    pub(super) fn assemble(&self, root: Id) -> Result<FilterProgram, ProgramError> {
        let mut layout = Layout {
            graph: self,
            backwards: Vec::new(),
            placed: vec![None; self.nodes.len()],
        };
        layout.place(root)?;
        let mut instructions = layout.backwards;
        instructions.reverse();
        FilterProgram::new(instructions)
    }
}

/// The program, last instruction first: a node is placed after its targets.
struct Layout<'a> {
    graph: &'a Graph,
    backwards: Vec<Instruction>,
    /// The nearest position that leads to a node: the node itself, or a long jump to it.
    placed: Vec<Option<usize>>,
}

impl Layout<'_> {
    /// Places a node and everything that it needs, without recursion: a chain of tests can be long.
    fn place(&mut self, root: Id) -> Result<(), ProgramError> {
        let mut todo = vec![root];
        while let Some(id) = todo.last().copied() {
            let node = self.graph.nodes[id.0 as usize];
            let needs = match node {
                Node::Return(_) => [None, None],
                Node::Load { next, .. } | Node::And { next, .. } => [Some(next), None],
                Node::Test { yes, no, .. } => [Some(yes), Some(no)],
            };
            if let Some(first) = needs
                .into_iter()
                .flatten()
                .find(|id| self.placed[id.0 as usize].is_none())
            {
                todo.push(first);
                continue;
            }
            todo.pop();
            if self.placed[id.0 as usize].is_none() {
                let instruction = self.instruction(node);
                self.push(id, instruction);
            }
            if self.backwards.len() > MAX_INSTRUCTIONS {
                return Err(ProgramError::TooLong {
                    have: self.backwards.len(),
                });
            }
        }
        Ok(())
    }

    /// The instruction for a node whose successors are placed and within jump range.
    fn instruction(&mut self, node: Node) -> Instruction {
        match node {
            Node::Return(value) => Instruction {
                code: RETURN,
                jt: 0,
                jf: 0,
                k: value,
            },
            Node::Load { offset, next } => {
                self.within(next, 0);
                Instruction {
                    code: LOAD,
                    jt: 0,
                    jf: 0,
                    k: offset,
                }
            }
            Node::And { mask, next } => {
                self.within(next, 0);
                Instruction {
                    code: AND,
                    jt: 0,
                    jf: 0,
                    k: mask,
                }
            }
            Node::Test { code, k, yes, no } => {
                // Placing the second may add an instruction in front of the first: one less.
                let yes = self.within(yes, 254);
                let no = self.within(no, 255);
                Instruction {
                    code,
                    jt: self.skip(yes),
                    jf: self.skip(no),
                    k,
                }
            }
        }
    }

    fn push(&mut self, id: Id, instruction: Instruction) {
        self.placed[id.0 as usize] = Some(self.backwards.len());
        self.backwards.push(instruction);
    }

    /// The number of instructions between the next one and this position.
    fn distance(&self, place: usize) -> usize {
        self.backwards.len() - place - 1
    }

    fn skip(&self, place: usize) -> u8 {
        u8::try_from(self.distance(place)).expect("within() brought it near")
    }

    /// A position within reach that leads to a placed node; 0 is the next instruction. Comparisons jump over at most
    /// 255 instructions. A farther node gets a copy if it is a return, else a long jump.
    fn within(&mut self, id: Id, reach: usize) -> usize {
        let place = self.placed[id.0 as usize].expect("its users place it first");
        let distance = self.distance(place);
        if distance <= reach {
            return place;
        }
        let instruction = match self.graph.nodes[id.0 as usize] {
            Node::Return(value) => Instruction {
                code: RETURN,
                jt: 0,
                jf: 0,
                k: value,
            },
            Node::Load { .. } | Node::And { .. } | Node::Test { .. } => {
                let k = u32::try_from(distance).expect("a program has at most 4,096 instructions");
                Instruction {
                    code: JUMP,
                    jt: 0,
                    jf: 0,
                    k,
                }
            }
        };
        self.push(id, instruction);
        self.backwards.len() - 1
    }
}
