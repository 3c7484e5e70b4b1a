//! The one buffer of a single-threaded process: idle connections hold no buffer.

use std::cell::RefCell;

/// Bytes of one read.
pub(super) const BUFFER: usize = 64 << 10;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

/// Lends the buffer to `work`, which must not wait and must not borrow it again.
pub(super) fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    SHARED.with_borrow_mut(|buffer| work(buffer))
}
