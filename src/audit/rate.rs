//! PURE. A rate limit: a burst, then so many each second.

/// A burst, then so many each second.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rate {
    pub burst: u64,
    pub second: u64,
}

/// The remaining tokens, in thousandths.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bucket {
    pub tokens: u64,
    refilled_ms: u64,
}

impl Bucket {
    /// A full bucket.
    pub fn full(rate: Rate, now_ms: u64) -> Self {
        Self {
            tokens: rate.burst * 1000,
            refilled_ms: now_ms,
        }
    }

    /// Adds tokens for the elapsed time.
    pub fn refill(&mut self, rate: Rate, now_ms: u64) {
        let elapsed = now_ms.saturating_sub(self.refilled_ms);
        let new = elapsed.saturating_mul(rate.second);
        self.tokens = self.tokens.saturating_add(new).min(rate.burst * 1000);
        self.refilled_ms = self.refilled_ms.max(now_ms);
    }

    /// Takes one token, if there is one.
    pub fn take(&mut self) -> bool {
        let enough = self.tokens >= 1000;
        if enough {
            self.tokens -= 1000;
        }
        enough
    }
}
