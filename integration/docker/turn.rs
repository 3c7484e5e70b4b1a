//! Who uses the rig: many tests together, or one alone.

use std::marker::PhantomData;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

/// Something that tests use together or alone. Not a `RwLock`: a test may take a second turn beside its first one, and there it
/// would wait for ever behind a test that waits to be alone.
pub struct Room {
    users: Mutex<Users>,
    left: Condvar,
}

struct Users {
    /// One entry for each turn.
    together: Vec<ThreadId>,
    is_alone: bool,
    /// Tests that wait to be alone. New ones wait behind them.
    waiting: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Together,
    Alone,
}

/// A test's use of a room, ended when dropped, by its thread.
pub struct Turn {
    room: &'static Room,
    kind: Kind,
    /// Stays on its thread.
    _own: PhantomData<MutexGuard<'static, ()>>,
}

impl Room {
    pub const fn new() -> Self {
        Self {
            users: Mutex::new(Users {
                together: Vec::new(),
                is_alone: false,
                waiting: 0,
            }),
            left: Condvar::new(),
        }
    }

    pub fn together(&'static self) -> Turn {
        let own = thread::current().id();
        let mut users = self.lock();
        while !users.together.contains(&own) && (users.is_alone || users.waiting > 0) {
            users = self.wait(users);
        }
        users.together.push(own);
        self.turn(Kind::Together)
    }

    pub fn alone(&'static self) -> Turn {
        let mut users = self.lock();
        let is_in = users.together.contains(&thread::current().id());
        assert!(!is_in, "it waits for itself");
        users.waiting += 1;
        while users.is_alone || !users.together.is_empty() {
            users = self.wait(users);
        }
        users.waiting -= 1;
        users.is_alone = true;
        self.turn(Kind::Alone)
    }

    fn turn(&'static self, kind: Kind) -> Turn {
        Turn {
            room: self,
            kind,
            _own: PhantomData,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Users> {
        self.users.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, users: MutexGuard<'a, Users>) -> MutexGuard<'a, Users> {
        self.left
            .wait(users)
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut users = self.room.lock();
        match self.kind {
            Kind::Alone => users.is_alone = false,
            Kind::Together => {
                let own = thread::current().id();
                let place = users.together.iter().position(|one| *one == own);
                users.together.swap_remove(place.unwrap());
            }
        }
        drop(users);
        self.room.left.notify_all();
    }
}

#[test]
fn a_test_takes_a_second_turn_while_another_waits_to_be_alone() {
    static ROOM: Room = Room::new();
    let first = ROOM.together();
    let alone = thread::spawn(|| drop(ROOM.alone()));
    while ROOM.lock().waiting == 0 {
        thread::yield_now();
    }
    let second = ROOM.together();
    assert!(!alone.is_finished());
    // A newcomer is behind it.
    let newcomer = thread::spawn(|| drop(ROOM.together()));
    drop(first);
    assert!(!alone.is_finished() && !newcomer.is_finished());
    drop(second);
    alone.join().unwrap();
    newcomer.join().unwrap();
    let users = ROOM.lock();
    assert!(users.together.is_empty() && !users.is_alone && users.waiting == 0);
}
