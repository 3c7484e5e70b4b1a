//! The kernel's counters in the event loop: attempts by address, and limits that were reached.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Instant;

use super::super::counts::KernelCounts;
use super::attempts::Taps;
use super::wall::Wall;

/// Looks from time to time until the sidecar ends; then the caller reads the rest. `verifies` is the number of `verify`
/// processes that started.
pub(super) fn serve(
    wall: &Rc<Wall>,
    counts: KernelCounts,
    verifies: Rc<Cell<u64>>,
    taps: Rc<Taps>,
) -> Rc<RefCell<KernelCounts>> {
    let counts = Rc::new(RefCell::new(counts));
    let (wall, looked_at) = (Rc::clone(wall), Rc::clone(&counts));
    tokio::task::spawn_local(async move {
        loop {
            let Some(next) = looked_at.borrow().next_look() else {
                return;
            };
            tokio::time::sleep_until(next.into()).await;
            looked_at.borrow_mut().excuse(verifies.take());
            let hear = || taps.hear_all(&wall);
            let events = looked_at.borrow_mut().look(Instant::now(), hear);
            wall.note_counts(events);
        }
    });
    counts
}
