//! The records of containers: written before anything in them is made, removed after the container is gone.
//!
//! | module | what it does |
//! |---|---|
//! | [`store`], [`record`] | one directory, one lock and one record for each container |
//! | [`census`], [`half_made`] | which containers share namespaces; processes that are not their program yet |
//! | [`find`], [`identity`] | finding a container by what the user typed; its name for people |
//! | [`report`] | the pipe on which a container's process reports why it did not start |
//! | [`user_dirs`] | the directories of users without root's rights |

pub mod census;
pub mod decision;
pub mod find;
pub mod half_made;
pub mod identity;
pub mod record;
pub mod report;
pub mod store;
pub mod user_dirs;
