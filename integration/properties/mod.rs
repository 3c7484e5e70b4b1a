//! Properties for all input: the bundles of real engines, and hostile ones, always the same.

mod hostile;
mod program;
pub mod walls;

/// xorshift64*: good enough to pick words, and the same on every machine.
pub struct Dice(u64);

impl Dice {
    /// Dice that always fall the same for one seed; 0 would give 0 forever.
    pub fn new(seed: u64) -> Self {
        Self(seed | 1 << 63)
    }

    pub fn below(&mut self, sides: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % sides
    }

    pub fn one_in(&mut self, sides: usize) -> bool {
        self.below(sides) == 0
    }

    pub fn pick<T: Clone>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())].clone()
    }

    pub fn some<T: Clone>(&mut self, items: &[T], one_in: usize) -> Vec<T> {
        let mut picked = items.to_vec();
        picked.retain(|_| self.one_in(one_in));
        picked
    }
}
