//! Answers to denied system calls in the event loop, which also serves the network.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use tokio::task::{spawn_local, yield_now};

use super::super::calls::{Calls, Turn};
use super::wall::Wall;
use crate::sys::event::ReadableFd;

/// Answers until the program ends.
pub(super) fn serve(wall: &Rc<Wall>, calls: Option<Calls>) -> Rc<RefCell<Option<Calls>>> {
    if let Some(calls) = &calls {
        let (wall, tool) = (Rc::clone(wall), wall.tool);
        calls.log_to(tool, Rc::new(move |event| wall.log(event)));
    }
    let calls = Rc::new(RefCell::new(calls));
    let served = Rc::clone(&calls);
    spawn_local(async move {
        // If the event loop cannot watch, the listeners are dropped: the kernel then answers denied calls with ENOSYS.
        if let Err(error) = answer(&served).await {
            eprintln!("agentbox-sidecar: denied calls are not logged any more: {error}");
        }
        served.borrow_mut().take();
    });
    calls
}

async fn answer(calls: &RefCell<Option<Calls>>) -> io::Result<()> {
    let copy = match calls.borrow().as_ref() {
        Some(calls) => calls.as_fd().try_clone_to_owned()?,
        None => return Ok(()),
    };
    let watched = ReadableFd::new(copy)?;
    loop {
        watched.wait().await?;
        loop {
            let turn = match calls.borrow_mut().as_mut() {
                Some(calls) => calls.turn()?,
                None => return Ok(()),
            };
            if turn == Turn::Idle {
                break;
            }
            yield_now().await;
        }
    }
}
