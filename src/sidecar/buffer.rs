//! The one buffer of a process with one thread: a connection on which nothing flows has none.

use std::cell::RefCell;

/// Bytes that are read at once.
pub(super) const BUFFER: usize = 64 << 10;

thread_local! {
    static SHARED: RefCell<Box<[u8]>> = RefCell::new(vec![0; BUFFER].into_boxed_slice());
}

/// Lends it for work that does not wait, and that does not borrow it again.
pub(super) fn with_buffer<T>(work: impl FnOnce(&mut [u8]) -> T) -> T {
    SHARED.with_borrow_mut(|buffer| work(buffer))
}
